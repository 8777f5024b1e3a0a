package worker

import (
	"slices"

	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/store"
)

// Reserve gives free places of an ungated queue to the engine for work that it is about to schedule (S2, eager). Nobody may wait in the queue: its
// last claim came back short.
func (p *Pool) Reserve(at store.QueueAt, key execution.QueueKey, n int) []store.Seat {
	if !key.System {
		return nil
	}
	info, known := p.store.Queues().KnownAt(at)
	no, _, ok := p.opt.Runner.Claims()
	if !known || info.Gated || !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.line(info)
	if l == nil || l.dirty || l.claims || l.blocked || p.closed || p.base == nil {
		return nil
	}
	starved := 0
	for _, other := range p.order {
		if other != l && other.dirty && other.running == 0 {
			starved++
		}
	}
	n = min(n, p.opt.Executors-l.running, p.opt.Executors*perRunner-p.busy-starved)
	if n <= 0 {
		return nil
	}
	l.running += n
	p.busy += n
	p.rotate(l)
	return slices.Repeat([]store.Seat{{Holder: no, LeaseMs: store.MaxLease}}, n)
}

// Deliver begins a call that the engine leased for a reserved place.
func (p *Pool) Deliver(seat store.Seat, l engine.Leased) {
	p.mu.Lock()
	at := p.lines[store.QueueAt{NS: l.NS, QueueID: l.QueueID}]
	p.mu.Unlock()
	var inputs map[store.LeaseKey][]byte
	if l.Input != nil {
		inputs = map[store.LeaseKey][]byte{l.Key(): l.Input}
	}
	_, lost, _ := p.opt.Runner.Claims()
	p.begin(at, seat.Holder, lost, []store.Leased{l.Leased}, inputs)
}

// Return takes an unused place back.
func (p *Pool) Return(at store.QueueAt, _ store.Seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[at]; l != nil {
		l.running--
		p.busy--
	}
	p.kick()
}

var _ engine.Eager = (*Pool)(nil)

// Polls lets the engine lease at once for long polls of this process.
type Polls struct{ Queue *queue.Queue }

// Reserve implements engine.Eager.
func (p Polls) Reserve(at store.QueueAt, key execution.QueueKey, n int) []store.Seat {
	return p.Queue.Reserve(at, key, n)
}

// Deliver implements engine.Eager.
func (p Polls) Deliver(seat store.Seat, l engine.Leased) {
	p.Queue.Deliver(seat, queue.Given{Lease: l.Leased, Input: l.Input})
}

// Return implements engine.Eager.
func (p Polls) Return(at store.QueueAt, seat store.Seat) { p.Queue.Return(at, seat) }

var _ engine.Eager = Polls{}
