package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/policies/limit"
	"nf/runtime/execution"
)

// ObjectAt names an object by its number.
type ObjectAt struct {
	NS int32
	ID int32
}

// GateSettings is what gates a queue now, and the clock.
type GateSettings struct {
	Now       time.Time
	DefID     int32
	Gated     bool
	Suspended bool
	Cap       int64     // concurrentExecLimit; 0 = none
	Changed   time.Time // when the definition was last changed
	Verdict   []byte    // last refusal, JSON; nil = none
	VerdictAt time.Time
	Found     bool
}

// GateLook learns, without locks, what gates a queue of a definition and which semaphores it needs, in order (S1b step 1).
func (t *Tx) GateLook(ctx context.Context, q QueueAt, def ObjectAt) (g GateSettings, sems []ObjectAt, err error) {
	p := t.pipeline()
	p.queue("gate_settings", "", []any{q.NS, q.QueueID}, reader(func(r *row) error { g = readGateSettings(r); return nil }))
	p.queue("gate_semaphore_set", "", []any{def.NS, def.ID}, reader(func(r *row) error {
		sems = append(sems, ObjectAt{r.i32(), r.i32()})
		return nil
	}))
	return g, sems, p.send(ctx)
}

func readGateSettings(r *row) GateSettings {
	return GateSettings{
		Now: r.time(), DefID: r.i32(), Gated: r.boolean(), Suspended: r.boolean(), Cap: r.i64(), Changed: r.time(), Verdict: r.bytes(),
		VerdictAt: r.time(), Found: true,
	}
}

// GateAsk is what a claim wants to know under the gates of its queue.
type GateAsk struct {
	Install    execution.UUID
	Queue      QueueAt
	Definition ObjectAt
	Semaphores []ObjectAt
	Limit      int64 // the definition's cap as it was seen before; 0 = its leases are not counted
	Low        LowFences
	Want       int // how many rows of the queue are looked at, less one
}

// GateRead takes the gates of a definition and its semaphores (L1), ascending by their keys, one statement each, and then reads settings, clock, counts
// and the first rows of the queue in statements of their own, which see everything that was committed before the locks were had (X10). All of it is one
// round trip. ErrBusy if a gate takes longer than 200 ms.
func (t *Tx) GateRead(ctx context.Context, ask GateAsk) (g GateSettings, c GateCounts, heads []Head, err error) {
	keys := make([]int64, 0, 1+len(ask.Semaphores))
	keys = append(keys, ObjectGate(ask.Install, GateDefinition, ask.Definition.NS, ask.Definition.ID))
	for _, s := range ask.Semaphores {
		keys = append(keys, ObjectGate(ask.Install, GateSemaphore, s.NS, s.ID))
	}
	p := t.pipeline()
	t.queueGates(p, keys, 0)
	p.queue("gate_settings", "", []any{ask.Queue.NS, ask.Queue.QueueID}, reader(func(r *row) error { g = readGateSettings(r); return nil }))
	t.queueCounts(p, &c, ask.Definition, ask.Limit, ask.Low)
	p.queue("gate_heads", "", []any{ask.Queue.NS, ask.Queue.QueueID, ask.Want + 1}, reader(func(r *row) error {
		heads = append(heads, Head{Lane: r.i16(), Sub: r.i16(), Seq: r.i64(), Task: limit.Task{NS: ask.Queue.NS, Exec: r.uuid(), No: r.i32()}})
		return nil
	}))
	return g, c, heads, busyGate(p.send(ctx))
}

// GateCounts is what is in flight, read under the gates.
type GateCounts struct {
	Definition int64 // leases of the definition, at most its cap a queue
	DefLow     int64 // smallest live fence; 0 = none
	Semaphores []SemaphoreCount
	NextFence  int64 // below it no lease can appear any more
}

// SemaphoreCount is one semaphore of a definition.
type SemaphoreCount struct {
	At      ObjectAt
	Address string // namespace/name
	limit.Semaphore
	Low int64 // smallest live fence; 0 = none
	// The waiter's ready row; QueueID 0 = it is not ready (any more).
	WaiterAt QueueAt
	Head     Head
}

// Head is a ready row: its place in the queue, and the task.
type Head struct {
	Lane, Sub int16
	Seq       int64
	Task      limit.Task
}

// LowFences are the marks that counts begin from; a missing one is 0.
type LowFences struct {
	Definition int64
	Semaphores map[ObjectAt]int64
}

// queueCounts counts everything in flight that has a fence at or above its low mark. limit is the definition's cap, 0 = not counted.
func (t *Tx) queueCounts(p *pipeline, c *GateCounts, def ObjectAt, limit int64, low LowFences) {
	ns, id, mark := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID), newColumn(pgtype.Int8OID)
	for at, fence := range low.Semaphores {
		ns.i32(at.NS)
		id.i32(at.ID)
		mark.i64(fence)
	}
	if limit > 0 {
		p.queue("gate_count", "", []any{def.NS, def.ID, low.Definition, limit}, reader(func(r *row) error {
			c.Definition, c.DefLow = r.i64(), r.i64()
			return nil
		}))
	}
	p.queue("gate_semaphores", "", []any{def.NS, def.ID, ns, id, mark}, reader(func(r *row) error {
		c.Semaphores = append(c.Semaphores, readSemaphoreCount(r))
		return nil
	}))
	p.queue("gate_next_fence", "", nil, reader(func(r *row) error { c.NextFence = r.i64(); return nil }))
}

func readSemaphoreCount(r *row) SemaphoreCount {
	var s SemaphoreCount
	s.At = ObjectAt{r.i32(), r.i32()}
	s.Address = r.text() + "/" + r.text()
	s.Permits, s.Held, s.Low = r.i64(), r.i64(), r.i64()
	task := limit.Task{NS: r.i32(), Exec: r.uuid(), No: r.i32()}
	s.Waiter, s.Skips, s.Until = task, int(r.i32()), r.time()
	s.WaiterAt = QueueAt{r.i32(), r.i32()}
	s.Head = Head{Lane: r.i16(), Sub: r.i16(), Seq: r.i64(), Task: task}
	return s
}

// ClaimGated leases the first allow of the given rows, each with one permit of every semaphore, in one statement (S1b step 7). The
// caller holds the gates and has counted under them.
func (t *Tx) ClaimGated(ctx context.Context, c Claim, heads []Head, allow int, now time.Time, sems []ObjectAt) (leased []Leased, err error) {
	lane, sub, seq := newColumn(pgtype.Int2OID), newColumn(pgtype.Int2OID), newColumn(pgtype.Int8OID)
	for _, h := range heads {
		lane.i16(h.Lane)
		sub.i16(h.Sub)
		seq.i64(h.Seq)
	}
	semNS, semID := newColumn(pgtype.Int4OID), newColumn(pgtype.Int4OID)
	for _, s := range sems {
		semNS.i32(s.NS)
		semID.i32(s.ID)
	}
	rows, err := t.query(ctx, "claim_gated", "", c.Queue.NS, c.Queue.QueueID, lane, sub, seq, allow, now, c.Holder, c.ClaimID, c.leaseMs(),
		textOrNil(c.Worker), semNS, semID)
	if err != nil {
		return nil, err
	}
	if err := each(rows, func(r *row) error { leased = append(leased, readLeased(r)); return nil }); err != nil {
		return nil, err
	}
	order := map[limit.Task]int{}
	for i, h := range heads {
		order[h.Task] = i
	}
	slices.SortFunc(leased, func(a, b Leased) int { return order[taskOf(a.ID, a.TaskNo)] - order[taskOf(b.ID, b.TaskNo)] })
	return leased, nil
}

func taskOf(id execution.ID, no int32) limit.Task {
	return limit.Task{NS: id.NS, Exec: id.Exec, No: no}
}

// Task names the task of a lease as the fairness of semaphores does.
func (l Leased) Task() limit.Task { return taskOf(l.ID, l.TaskNo) }

// SetWaiter writes the waiter of a semaphore (S1b step 8).
func (t *Tx) SetWaiter(ctx context.Context, at ObjectAt, s limit.Semaphore) error {
	var ns, id, no, until any
	if s.Waiter != (limit.Task{}) {
		ns, id, no, until = s.Waiter.NS, s.Waiter.Exec, s.Waiter.No, s.Until
	}
	_, err := t.exec(ctx, "gate_place", "", at.NS, at.ID, ns, id, no, s.Skips, until)
	return err
}

// SetVerdict writes the last refusal of a definition; nil = nothing was refused.
func (t *Tx) SetVerdict(ctx context.Context, def ObjectAt, verdict []byte, now time.Time) error {
	var body, at any
	if verdict != nil {
		body, at = verdict, now
	}
	_, err := t.exec(ctx, "gate_verdict", "", def.NS, def.ID, body, at)
	return err
}

// ExpiredLeases gives leases that look lost and hold a place of the definition or a permit of one of its semaphores, at most 100 of each.
func (t *Tx) ExpiredLeases(ctx context.Context, def ObjectAt, limit int64, counts GateCounts, low LowFences, now time.Time) (all []LeaseRow, err error) {
	p := t.pipeline()
	read := reader(func(r *row) error { all = append(all, readLeaseRow(r)); return nil })
	if limit > 0 {
		p.queue("gate_expired", "", []any{def.NS, def.ID, low.Definition, limit, now}, read)
	}
	for _, s := range counts.Semaphores {
		p.queue("gate_expired_permits", "", []any{s.At.NS, s.At.ID, low.Semaphores[s.At], s.Permits, now}, read)
	}
	if err := p.send(ctx); err != nil {
		return nil, err
	}
	seen := map[LeaseKey]bool{}
	return slices.DeleteFunc(all, func(l LeaseRow) bool {
		twice := seen[l.LeaseKey]
		seen[l.LeaseKey] = true
		return twice
	}), nil
}
