package clock

import (
	"sync"
	"time"
)

const (
	// StepLimit is how far the database clock and the process's own may drift apart between two looks before it counts as a step.
	StepLimit = 2 * time.Second
	// RestFor is how long lost work is not reclaimed after a step: until live holders have beaten again.
	RestFor = 20 * time.Second
)

// Guard notices steps of the database clock (B8): it compares how far that clock has moved since the last look with the process's own monotonic
// clock. This is the only place where the two are compared. Safe for concurrent use; the zero value is not usable: NewGuard.
type Guard struct {
	clock Clock

	mu    sync.Mutex
	seen  bool
	own   time.Time
	db    time.Time
	until time.Time // own clock; resting before it
}

// NewGuard makes a guard over the process's clock.
func NewGuard(c Clock) *Guard { return &Guard{clock: c} }

// Observe takes a reading of the database clock, made just now, and says whether lost-work reclaim must rest.
func (g *Guard) Observe(db time.Time) (resting bool) {
	own := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen {
		if apart := db.Sub(g.db) - own.Sub(g.own); apart > StepLimit || apart < -StepLimit {
			g.until = own.Add(RestFor)
		}
	}
	g.seen, g.own, g.db = true, own, db
	return own.Before(g.until)
}

// Resting says whether lost-work reclaim rests: nothing is reclaimed and no runner is declared dead.
func (g *Guard) Resting() bool {
	own := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return own.Before(g.until)
}
