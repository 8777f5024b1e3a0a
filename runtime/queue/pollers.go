package queue

import (
	"context"
	"sync"
	"time"

	"nf/runtime/store"
)

// maxPollers bounds the workers that are remembered between two flushes: more are counted under one name.
const maxPollers = 10_000

// pollers counts who polls what between two flushes. A worker counts from the start of its call, and as long as the call lasts.
type pollers struct {
	mu   sync.Mutex
	all  map[pollerKey]*store.Poll
	open map[pollerKey]int
}

type pollerKey struct {
	queue  store.QueueAt
	worker string
}

func (p *pollers) init() {
	p.all, p.open = map[pollerKey]*store.Poll{}, map[pollerKey]int{}
}

func (p *pollers) at(k pollerKey) *store.Poll {
	one, ok := p.all[k]
	if !ok {
		if len(p.all) >= maxPollers {
			k.worker = "_other"
			if one, ok = p.all[k]; ok {
				return one
			}
		}
		one = &store.Poll{Queue: k.queue, Worker: k.worker}
		p.all[k] = one
	}
	return one
}

func (p *pollers) poll(q store.QueueAt, worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := pollerKey{q, worker}
	p.at(k).Polls++
	p.open[k]++
}

func (p *pollers) done(q store.QueueAt, worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := pollerKey{q, worker}
	if p.open[k]--; p.open[k] <= 0 {
		delete(p.open, k)
	}
}

func (p *pollers) result(q store.QueueAt, worker string, leased int, throttled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.at(pollerKey{q, worker})
	one.Leased += int64(leased)
	if throttled {
		one.Throttled++
	}
}

// flush gives what has gathered, and the workers whose calls are open.
func (p *pollers) flush() []store.Poll {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.open {
		p.at(k)
	}
	out := make([]store.Poll, 0, len(p.all))
	for _, one := range p.all {
		out = append(out, *one)
	}
	clear(p.all)
	return out
}

// noting writes pollers every 10 s, the first time after one.
func (q *Queue) noting(ctx context.Context) error {
	wait := time.Second
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.NewTimer(jitter(wait)).C:
		}
		wait = noteEvery
		if err := q.store.NotePollers(ctx, q.polls.flush()); err != nil {
			q.failed(ctx, "pollers", err)
		}
	}
}
