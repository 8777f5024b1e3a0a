// Package clock is the only reader of wall time in the process. What processes share uses the database clock (A0.1).
package clock

import "time"

// Clock tells the time. Implementations are safe for concurrent use.
type Clock interface{ Now() time.Time }

// System is the machine's clock.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }
