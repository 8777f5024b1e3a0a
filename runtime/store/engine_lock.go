package store

import (
	"context"
	"slices"
	"time"

	"nf/runtime/execution"
)

// Batch is what a flush of the completer wants to lock: executions and attempts. The slices are sorted in place.
type Batch struct {
	Execs    []execution.ID
	Attempts []AttemptKey
	// Wait waits for the locks instead of passing over what is locked: for one item that goes alone.
	Wait bool
}

// Locked is what a batch came to.
type Locked struct {
	Now      time.Time // read after the locks, for the whole transaction
	Headers  map[execution.ID]execution.Header
	Attempts map[AttemptKey]execution.Attempt
}

// CompareID orders executions as locks do: by namespace, then id.
func CompareID(a, b execution.ID) int {
	if a.NS != b.NS {
		return int(a.NS) - int(b.NS)
	}
	return slices.Compare(a.Exec[:], b.Exec[:])
}

func compareAttempt(a, b AttemptKey) int {
	if c := CompareID(a.ID, b.ID); c != 0 {
		return c
	}
	return int(a.TaskNo) - int(b.TaskNo)
}

// Lock takes the locks of S2 steps 2 and 3 in one round trip: executions in key order, then attempts, timers before ready before leases.
func (t *Tx) Lock(ctx context.Context, b Batch) (Locked, error) {
	out := Locked{
		Headers:  make(map[execution.ID]execution.Header, len(b.Execs)),
		Attempts: make(map[AttemptKey]execution.Attempt, len(b.Attempts)),
	}
	slices.SortFunc(b.Execs, CompareID)
	slices.SortFunc(b.Attempts, compareAttempt)
	verb := "engine_lock_"
	if b.Wait {
		verb = "engine_wait_"
	}
	p := t.pipeline()
	execs := newTable(verb+"execs", oI32, oUUID)
	for _, id := range b.Execs {
		execs.id(id)
	}
	p.queue(execs.name, "", execs.args, reader(func(r *row) error {
		h := readHeader(r)
		out.Headers[h.ID] = h
		return nil
	}))
	for _, place := range []execution.Place{execution.InTimer, execution.InReady, execution.InLease} {
		lockPlace(p, verb, place, b.Attempts, out.Attempts)
	}
	p.queue("now", "", nil, reader(func(r *row) error { out.Now = r.time(); return nil }))
	return out, p.send(ctx)
}

func lockPlace(p *pipeline, verb string, place execution.Place, keys []AttemptKey, into map[AttemptKey]execution.Attempt) {
	var k *table
	switch place {
	case execution.InTimer:
		k = newTable(verb+"timers", oI32, oUUID, oI32, oI32)
	case execution.InReady:
		k = newTable(verb+"ready", oI32, oUUID, oI32, oI32)
	case execution.InLease:
		k = newTable(verb+"leases", oI32, oUUID, oI32, oI32, oI64)
	}
	for _, a := range keys {
		if a.Place != place {
			continue
		}
		k.id(a.ID)
		k.cols[2].i32(a.TaskNo)
		k.cols[3].i32(a.Attempt)
		if place == execution.InLease {
			k.cols[4].i64(a.Fence)
		}
	}
	if k.rows() == 0 {
		return
	}
	p.queue(k.name, "", k.args, reader(func(r *row) error {
		a := readAttempt(r, place)
		into[a.Key()] = a.Attempt
		return nil
	}))
}

func readHeader(r *row) execution.Header {
	return execution.Header{
		ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, Seq: r.i64(), StartedAt: r.time(), AdmittedAt: r.time(), DefID: r.i32(), RevID: r.i32(),
		NextNo: r.i32(), Loose: r.i32(), Reruns: r.i32(), Priority: r.i16(), Depth: r.i16(),
		EndStatus: execution.Status(r.i16()), EndCause: execution.Cause(r.text()), EndReason: r.text(), EndNo: r.i32(),
	}
}

// readAttempt reads the columns that travel, then those of the place.
func readAttempt(r *row, place execution.Place) OpenAttempt {
	a := OpenAttempt{ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, Attempt: execution.Attempt{
		TaskNo: r.i32(), Attempt: r.i32(), QueueID: r.i32(), Lane: r.i16(), Kind: execution.Kind(r.i16()), ScopeNo: r.i32(), Slot: r.i32(),
		RevID: r.i32(), DefID: r.i32(), DefRev: r.i32(), Rerun: r.i32(), Deliveries: r.i32(), RetriesLeft: r.i32(), ScheduledAt: r.time(),
		VisibleAt: r.time(), StartBy: r.time(), AttBy: r.time(), TotalBy: r.time(), Iteration: r.text(), Place: place,
	}}
	switch place {
	case execution.InTimer:
		a.Why = execution.Why(r.i16())
	case execution.InLease:
		a.Fence, a.Holder, a.ClaimID = r.i64(), r.i32(), r.i64()
		a.LeasedAt, a.LeaseUntil, a.BeatBy, a.CloseBy = r.time(), r.time(), r.time(), r.time()
		a.LeaseMs, a.Sems, a.Worker = r.i64(), r.i16(), r.text()
	case execution.InReady:
	}
	return a
}

// Peeked says where what was not locked stands now.
type Peeked struct {
	Execs    map[execution.ID]bool  // still open, so locked elsewhere
	Attempts map[TaskKey]AttemptKey // the task's open attempt
}

// Peek looks without locks at what Lock did not get (S2 steps 2 and 3).
func (t *Tx) Peek(ctx context.Context, execs []execution.ID, tasks []TaskKey) (Peeked, error) {
	out := Peeked{Execs: map[execution.ID]bool{}, Attempts: map[TaskKey]AttemptKey{}}
	p := t.pipeline()
	if len(execs) > 0 {
		k := newTable("engine_peek_execs", oI32, oUUID)
		for _, id := range execs {
			k.id(id)
		}
		p.queue(k.name, "", k.args, reader(func(r *row) error {
			out.Execs[execution.ID{NS: r.i32(), Exec: r.uuid()}] = true
			return nil
		}))
	}
	if len(tasks) > 0 {
		k := newTable("engine_peek_attempts", oI32, oUUID, oI32)
		for _, task := range tasks {
			k.id(task.ID)
			k.cols[2].i32(task.TaskNo)
		}
		p.queue(k.name, "", k.args, reader(func(r *row) error {
			task := TaskKey{execution.ID{NS: r.i32(), Exec: r.uuid()}, r.i32()}
			place := execution.Place(r.i16()) //nolint:gosec // 1 to 3
			out.Attempts[task] = AttemptKey{ID: task.ID, TaskNo: task.TaskNo, Place: place, Attempt: r.i32(), Fence: r.i64()}
			return nil
		}))
	}
	return out, p.send(ctx)
}

// EndLock takes the ending locks of executions that this transaction holds, exclusively, in key order (S5 movers, S8). It waits for movers only.
func (t *Tx) EndLock(ctx context.Context, execs []execution.ID) error {
	slices.SortFunc(execs, CompareID)
	p := t.pipeline()
	for _, id := range execs {
		p.queue("engine_end_lock", "", []any{id.NS, id.Exec}, nil)
	}
	return p.send(ctx)
}

// LockOpen locks the open attempts of executions that are being ended, at most limit an execution, in the order timers, ready, leases (S8
// step 3): a claim moves attempts forwards only, so none escapes. One statement each, since each must see what the one before waited for.
func (t *Tx) LockOpen(ctx context.Context, execs []execution.ID, limit int32) ([]OpenAttempt, error) {
	slices.SortFunc(execs, CompareID)
	k := newTable("", oI32, oUUID)
	for _, id := range execs {
		k.id(id)
	}
	args := append(slices.Clone(k.args), limit)
	var out []OpenAttempt
	p := t.pipeline()
	for _, q := range []struct {
		name  string
		place execution.Place
	}{{"engine_open_timers", execution.InTimer}, {"engine_open_ready", execution.InReady}, {"engine_open_leases", execution.InLease}} {
		p.queue(q.name, "", args, reader(func(r *row) error {
			out = append(out, readAttempt(r, q.place))
			return nil
		}))
	}
	return out, p.send(ctx)
}
