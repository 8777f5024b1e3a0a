package decider

// template is a value with ${…} expressions, and what it refers to.
type template struct{}

func (p *Program) parse() error { return nil }
