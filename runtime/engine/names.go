package engine

import (
	"context"
	"time"

	"nf/schema"
)

// TaskOf gives the task of a slot in a pinned revision. nil where the revision has no such slot. It may read the database: call it
// while holding no connection.
func (e *Engine) TaskOf(ctx context.Context, ns, revID, slot int32) (*schema.Task, error) {
	p, err := e.programs.load(ctx, ns, revID)
	if err != nil {
		return nil, err
	}
	return p.Task(slot), nil
}

// DatabaseNow estimates the database clock. It is for showing, and decides nothing.
func (e *Engine) DatabaseNow() time.Time { return e.dbNow() }
