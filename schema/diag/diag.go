// Package diag says what is wrong with what an author wrote, where it stands, and what to do about it.
//
// It is pure and imports nothing of the project, so every package can speak it. Validators report a JSON Pointer and an
// object; the loader fills in file and range.
package diag

// Level is how serious a finding is.
type Level string

// The levels.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
)

// Code is a finding's stable code, such as NF2101. A code is never reused (contract 6).
type Code string

// Pos is a place in a file: 1-based line and column (code points), and 0-based offset in bytes.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Offset int `json:"offset"`
}

// Range is a half-open span of a file.
type Range struct {
	Start Pos
	End   Pos
}

// Object is the address of what a finding is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Related is another place that matters to a finding.
type Related struct {
	File    string `json:"file"`
	Start   Pos    `json:"start"`
	Message string `json:"message"`
	// Pointer is where that is in the finding's own document, for In to fill in File and Start.
	Pointer string `json:"-"`
}

// Edit replaces the bytes [Start, End) by Text.
type Edit struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"text"`
}

// Fix is a set of edits that mends a finding. Safe fixes never change meaning.
type Fix struct {
	Edits []Edit `json:"edits"`
	Safe  bool   `json:"safe"`
}

// Span is a half-open span of code points inside a text value, from 0.
type Span struct {
	Start int
	End   int
}

// Diagnostic is one finding (contract 6). Its JSON form is fixed; see MarshalJSON in json.go.
type Diagnostic struct {
	Code     Code
	Level    Level
	Message  string // a full sentence that names the specifics
	Hint     string // proposes the edit
	File     string // relative to the project
	Range    Range  // zero when unknown
	Document int    // 0-based index of the document in its file
	Pointer  string // JSON Pointer into the document
	// AtKey asks for the position of the key that Pointer's last step names, not of its value.
	AtKey bool
	// Text narrows the position to a span inside the text value at Pointer, such as one ${…} of several. Nil = all of it.
	Text *Span
	// Replace is the text that mends the finding when it is put in place of the key or value it points to. In turns it into Fix.
	Replace     string
	ReplaceSafe bool
	Object      *Object
	Related     []Related
	Fix         *Fix
}

// List is a set of findings. It is never dropped: functions return it on every path.
type List []Diagnostic
