//go:build unix

package workertest

import (
	"sync"
	"time"

	"nf/runtime/store"
)

// Clock is real time plus what the test has added, for the process's clock and the database's alike. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration
	stores []*store.Store
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// Attach makes a store's database clock follow.
func (c *Clock) Attach(s *store.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	s.SetClockOffset(c.offset)
}

// Advance moves both clocks.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	for _, s := range c.stores {
		s.SetClockOffset(c.offset)
	}
}

// Step moves the database's clock alone, as an operator who sets it does.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		s.SetClockOffset(c.offset + d)
	}
}
