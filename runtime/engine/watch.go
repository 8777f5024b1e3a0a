package engine

import (
	"context"
	"sync"
	"time"

	"nf/runtime/execution"
)

// watch tells waiting readers of this process that an execution has changed. Changes of other processes are seen by polling.
type watch struct {
	mu  sync.Mutex
	all map[execution.ID][]chan int64
}

func (w *watch) init() { w.all = map[execution.ID][]chan int64{} }

// changed tells whoever waits for an execution its new seq. It never blocks.
func (w *watch) changed(id execution.ID, seq int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all[id] {
		select {
		case <-c: // not read yet, and outdated
		default:
		}
		c <- seq // has room: only this function writes, under the lock
	}
}

func (w *watch) subscribe(id execution.ID) (<-chan int64, func()) {
	c := make(chan int64, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[id] = append(w.all[id], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		list := w.all[id]
		for i := range list {
			if list[i] == c {
				list = append(list[:i:i], list[i+1:]...)
				break
			}
		}
		if len(list) == 0 {
			delete(w.all, id)
			return
		}
		w.all[id] = list
	}
}

// pollChange is how often a waiting reader looks for changes that another process made.
const pollChange = 500 * time.Millisecond

// WaitChange waits until the execution's seq is above after, until it has ended, or for at most wait. It holds no connection while it
// waits. An execution that does not exist is no error here: the read that follows says so.
func (e *Engine) WaitChange(ctx context.Context, id execution.ID, after int64, wait time.Duration) error {
	changes, stop := e.watch.subscribe(id)
	defer stop()
	end := time.NewTimer(wait)
	defer end.Stop()
	poll := time.NewTimer(0) // the first look is at once
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.done:
			return nil
		case <-end.C:
			return nil
		case seq := <-changes:
			if seq > after {
				return nil
			}
		case <-poll.C:
			seq, open, err := e.store.Seq(ctx, id)
			if err != nil || !open || seq > after {
				return err
			}
			poll.Reset(pollChange)
		}
	}
}
