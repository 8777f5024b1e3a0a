package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// Held names a lease as its holder knows it.
type Held struct {
	ID        execution.ID
	Namespace string
	TaskNo    int32
	Attempt   int32
	Token     string // leaseToken
}

// Beat is a heartbeat.
type Beat struct {
	Held
	LeaseMs int64 // 0 = the length of this lease
}

// BeatResult answers a heartbeat.
type BeatResult struct {
	LeaseUntil time.Time
	Cancel     bool  // the execution is being ended: stop
	Err        error // ErrLeaseExpired, or the world's failure
}

// Verify gives the fence of a token. ErrLeaseExpired without details if it is not one of this task.
func (q *Queue) Verify(ctx context.Context, h Held) (store.LeaseKey, error) {
	signer, err := q.signerNow(ctx)
	if err != nil {
		return store.LeaseKey{}, err
	}
	fence, ok := signer.Verify(h.Token, h.Namespace, TaskID(h.ID.Exec, h.TaskNo, h.Attempt))
	if !ok {
		return store.LeaseKey{}, ErrLeaseExpired
	}
	return store.LeaseKey{ID: h.ID, TaskNo: h.TaskNo, Attempt: h.Attempt, Fence: fence}, nil
}

// Heartbeat extends leases of external workers, each judged by itself, at most 100. A beat that would move the deadline by less than a
// third of its interval is answered without a write (contract 3.7). It extends lease and heartbeat, never a time-out.
func (q *Queue) Heartbeat(ctx context.Context, beats []Beat) []BeatResult {
	out := make([]BeatResult, len(beats))
	keys := make([]store.LeaseKey, len(beats))
	var index []int
	for i, b := range beats {
		key, err := q.Verify(ctx, b.Held)
		if err != nil {
			out[i].Err = err
			continue
		}
		keys[i] = key
		index = append(index, i)
	}
	for try := 0; len(index) > 0; try++ {
		again, err := q.beat(ctx, beats, keys, index, out)
		if err != nil || len(again) == 0 || try == 3 || !pause(ctx, time.Duration(try+1)*5*time.Millisecond) {
			for _, i := range again {
				out[i].Err = errors.Join(err, errBeatLocked)
			}
			return out
		}
		index = again
	}
	return out
}

// errBeatLocked says that something else is changing the lease at this moment.
var errBeatLocked = fmt.Errorf("the lease is in use elsewhere: %w", store.ErrBusy)

// beat does one round and gives the beats that must be sent again.
func (q *Queue) beat(ctx context.Context, beats []Beat, keys []store.LeaseKey, index []int, out []BeatResult) (again []int, err error) {
	held := make([]store.LeaseKey, len(index))
	for n, i := range index {
		held[n] = keys[i]
	}
	states, err := q.store.LeaseStates(ctx, store.Ctl, held)
	if err != nil {
		return index, err
	}
	var write []store.Beat
	var writes []int
	for n, i := range index {
		st := states[n]
		if !st.Found || st.Holder != 0 || st.Attempt != keys[i].Attempt {
			out[i].Err = ErrLeaseExpired
			continue
		}
		b, err := q.length(ctx, beats[i], keys[i], st)
		if err != nil {
			out[i].Err = err
			continue
		}
		out[i] = BeatResult{LeaseUntil: st.LeaseUntil, Cancel: st.Ending}
		if !small(b, st) {
			write = append(write, b)
			writes = append(writes, i)
		}
	}
	if len(write) == 0 {
		return nil, nil
	}
	ends, err := q.store.Beats(ctx, write)
	if err != nil {
		return writes, err
	}
	for n, i := range writes {
		if ends[n].IsZero() {
			again = append(again, i) // gone, or locked: the next round tells
			continue
		}
		out[i].LeaseUntil = ends[n]
	}
	return again, nil
}

// length gives what a beat extends to: min(asked for or this lease's length, responseTimeoutSeconds).
func (q *Queue) length(ctx context.Context, b Beat, key store.LeaseKey, st store.LeaseState) (store.Beat, error) {
	def, err := q.definition(ctx, key.NS, st.DefRev)
	if err != nil {
		return store.Beat{}, err
	}
	out := store.Beat{LeaseKey: key, LeaseMs: st.LeaseMs}
	if b.LeaseMs > 0 {
		out.LeaseMs = b.LeaseMs
	}
	if def != nil {
		out.LeaseMs = min(out.LeaseMs, int64(def.ResponseTimeout))
		out.BeatMs = int64(def.HeartbeatTimeout)
	}
	return out, nil
}

// small says whether a beat would move the deadlines by less than a third of their interval.
func small(b store.Beat, st store.LeaseState) bool {
	lease := st.Now.Add(time.Duration(b.LeaseMs) * time.Millisecond).Sub(st.LeaseUntil)
	if lease.Milliseconds()*3 >= b.LeaseMs || lease < 0 { // a shorter lease is written too
		return false
	}
	if b.BeatMs == 0 {
		return true
	}
	beat := st.Now.Add(time.Duration(b.BeatMs) * time.Millisecond).Sub(st.BeatBy)
	return beat.Milliseconds()*3 < b.BeatMs
}

// definition gives a task definition at a revision; nil for revision 0.
func (q *Queue) definition(ctx context.Context, ns, rev int32) (*schema.TaskDefinition, error) {
	if rev == 0 {
		return nil, nil
	}
	if pinned, ok := q.opt.Registry.Snapshot().TaskRev(ns, rev); ok {
		return pinned.Def, nil
	}
	if err := q.opt.Registry.LoadTaskRevs(ctx, ns, []int32{rev}); err != nil {
		return nil, err
	}
	pinned, ok := q.opt.Registry.Snapshot().TaskRev(ns, rev)
	if !ok {
		return nil, fmt.Errorf("task definition revision %d: %w", rev, store.ErrNotFound)
	}
	return pinned.Def, nil
}

// Release takes leases back whose holder has not begun: no delivery, head of the lane (S7). Each answer is nil, ErrLeaseExpired or the world's failure.
func (q *Queue) Release(ctx context.Context, held []Held) []error {
	out := make([]error, len(held))
	var keys []store.LeaseKey
	var index []int
	for i, h := range held {
		key, err := q.Verify(ctx, h)
		if err != nil {
			out[i] = err
			continue
		}
		keys = append(keys, key)
		index = append(index, i)
	}
	for n, err := range q.ReleaseKeys(ctx, store.API, keys) {
		out[index[n]] = err
	}
	return out
}

// ReleaseKeys is Release for holders of this process, which know their fences.
func (q *Queue) ReleaseKeys(ctx context.Context, lane store.Lane, keys []store.LeaseKey) []error {
	out := make([]error, len(keys))
	for from := 0; from < len(keys); from += store.MaxMoved {
		part := keys[from:min(from+store.MaxMoved, len(keys))]
		copy(out[from:], q.releasePart(ctx, lane, part))
	}
	return out
}

func (q *Queue) releasePart(ctx context.Context, lane store.Lane, keys []store.LeaseKey) []error {
	out := make([]error, len(keys))
	states, err := q.store.LeaseStates(ctx, lane, keys)
	if err != nil {
		return fill(out, err)
	}
	var moves []store.Move
	var index []int
	var queues []store.QueueAt
	for i, st := range states {
		def, err := q.definition(ctx, keys[i].NS, st.DefRev)
		switch {
		case !st.Found || st.Attempt != keys[i].Attempt:
			out[i] = ErrLeaseExpired
		case err != nil:
			out[i] = err
		default:
			moves = append(moves, store.Move{LeaseKey: keys[i], StartBy: StartBy(def, st.Now)})
			index = append(index, i)
			queues = append(queues, store.QueueAt{NS: keys[i].NS, QueueID: st.QueueID})
		}
	}
	if len(moves) == 0 {
		return out
	}
	for try := range 4 {
		results, err := q.store.Release(ctx, lane, moves)
		if err != nil && (try == 3 || !store.Transient(err)) {
			for _, i := range index {
				out[i] = err
			}
			return out
		}
		busy := err != nil
		for n, res := range results {
			out[index[n]] = res
			if errors.Is(res, store.ErrLeaseLost) && try == 0 {
				out[index[n]] = ErrLeaseExpired
			} else if errors.Is(res, store.ErrLeaseLost) {
				out[index[n]] = nil // an earlier try of this release, as far as can be told
			}
			busy = busy || errors.Is(res, store.ErrBusy)
		}
		if !busy || !pause(ctx, time.Duration(try+1)*10*time.Millisecond) {
			break
		}
	}
	q.Ready(queues)
	q.Freed(queues)
	return out
}

func fill(out []error, err error) []error {
	for i := range out {
		out[i] = err
	}
	return out
}

// GiveBack returns leases whose answer could not be written (A4.10): without a delivery; under atMostOnce the work may have been seen, so it
// counts as lost (contract 3.7) and the sweep ends it. What fails is left to the lease's own end.
func (q *Queue) GiveBack(ctx context.Context, leased []store.Leased) {
	end, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var back, lost []store.LeaseKey
	for _, l := range leased {
		def, err := q.definition(end, l.NS, l.DefRev)
		if err != nil {
			q.failed(ctx, "giveback", err)
			continue
		}
		if def != nil && def.Delivery == schema.AtMostOnce {
			lost = append(lost, l.Key())
			continue
		}
		back = append(back, l.Key())
	}
	for _, err := range q.ReleaseKeys(end, store.API, back) {
		if err != nil && !errors.Is(err, ErrLeaseExpired) {
			q.failed(ctx, "giveback", err)
		}
	}
	if err := q.store.ExpireNow(end, store.API, lost); err != nil {
		q.failed(ctx, "giveback", err)
	}
}

// doubt is a claim whose COMMIT was not answered and that was not found: the old backend may still commit it (S0). What turns up is given back.
type doubt struct {
	queue      store.QueueAt
	claimID    int64
	repeatable bool // the client may repeat its request id within a minute: only later is it given back
	since      time.Time
	leased     []store.Leased // instead of a claim: leases for which nobody is left
}

func (q *Queue) doubt(d doubt) {
	d.since = q.opt.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.doubts = append(q.doubts, d)
}

// giveBackLater returns leases outside the caller's path.
func (q *Queue) giveBackLater(leased []store.Leased) { q.doubt(doubt{leased: leased}) }

// doubtFor is how long a doubtful claim is looked for: longer than any transaction lives.
const doubtFor = 30 * time.Second

// doubting looks doubtful claims up once a second and gives back what they turn out to have leased.
func (q *Queue) doubting(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			q.clearDoubts(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
			q.clearDoubts(ctx)
		}
	}
}

func (q *Queue) clearDoubts(ctx context.Context) {
	q.mu.Lock()
	doubts := q.doubts
	q.doubts = nil
	q.mu.Unlock()
	var keep []doubt
	for _, d := range doubts {
		if d.leased != nil {
			q.GiveBack(ctx, d.leased)
			continue
		}
		age := q.opt.Clock.Now().Sub(d.since)
		if d.repeatable && age < repeatWithin {
			keep = append(keep, d)
			continue
		}
		leased, err := q.store.ClaimLookup(ctx, store.API, d.queue, d.claimID, 0, 2*repeatWithin)
		switch {
		case err == nil && len(leased) > 0:
			q.GiveBack(ctx, leased)
		case err != nil || age < doubtFor || (d.repeatable && age < repeatWithin+doubtFor):
			keep = append(keep, d)
		}
	}
	q.mu.Lock()
	q.doubts = slices.Concat(q.doubts, keep)
	q.mu.Unlock()
}
