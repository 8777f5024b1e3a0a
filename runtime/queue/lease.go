package queue

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// Ask is how much is wanted of one queue.
type Ask struct {
	Queue string // <definition>
	Count int    // 1–100
}

// Request is a lease request of an external worker (contract 4.3).
type Request struct {
	NS        int32
	Namespace string
	Queues    []Ask         // 1–20, served in rotation
	Wait      time.Duration // 0–30 s; shortened to the smallest pollTimeoutSeconds of the definitions
	LeaseMs   int64         // 0 = as long as the definition allows
	Worker    string        // 1–255
	RequestID string        // "" = none; repeated within a minute it gives the same leases, if they are still held
	Key       string        // id of the API key: request ids of different keys are different
}

// Task is a leased task with what its worker needs.
type Task struct {
	store.Leased
	Queue            string
	Definition       *schema.TaskDefinition
	Input            []byte // JSON; nil = {}
	Token            string // leaseToken
	HeartbeatTimeout schema.Millis
}

// Answer is what a lease request gives. Both lists may be empty.
type Answer struct {
	Tasks     []Task
	Throttled []Throttled // at most one a queue
}

// repeatWithin is how long a request id answers with the same leases.
const repeatWithin = time.Minute

// TaskID is a task attempt's id on the wire: <executionId>.<task number>.<attempt>.
func TaskID(id execution.UUID, taskNo, attempt int32) string {
	return fmt.Sprintf("%s.%d.%d", id, taskNo, attempt)
}

// served is a queue of a request.
type served struct {
	info store.QueueInfo
	want int
}

// Lease gives tasks to an external worker: at once if there are any, else when some turn up, until the wait ends. A refusal by a gate is part of the answer,
// not an error. ErrUnknownQueue and ErrReserved name the queue. When ctx ends (the client has gone) nothing stays leased.
func (q *Queue) Lease(ctx context.Context, r Request) (Answer, error) {
	queues, wait, err := q.resolve(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	for _, s := range queues {
		q.polls.poll(s.info.QueueAt, r.Worker)
		defer q.polls.done(s.info.QueueAt, r.Worker)
	}
	l := &leasing{q: q, r: r, queues: queues, claimID: q.NextClaim(), throttled: map[store.QueueAt]*Throttled{}}
	if r.RequestID != "" {
		l.claimID = requestClaim(r)
		if err := l.repeated(ctx); err != nil {
			return Answer{}, err
		}
	}
	if len(l.leased) == 0 {
		if err := l.run(ctx, wait); err != nil && len(l.leased) == 0 {
			return Answer{}, err
		}
	}
	return l.answer(ctx)
}

// resolve finds the queues of a request and how long it may wait.
func (q *Queue) resolve(ctx context.Context, r Request) ([]served, time.Duration, error) {
	snapshot, wait := q.opt.Registry.Snapshot(), r.Wait
	out := make([]served, 0, len(r.Queues))
	for _, ask := range r.Queues {
		if strings.HasPrefix(ask.Queue, "_nf.") {
			return nil, 0, fmt.Errorf("queue %q: %w", ask.Queue, ErrReserved)
		}
		key := execution.QueueKey{NS: r.NS, Name: ask.Queue}
		pinned, ok := snapshot.Task(r.NS, ask.Queue)
		if !ok {
			return nil, 0, fmt.Errorf("queue %q: %w", ask.Queue, ErrUnknownQueue)
		}
		wait = min(wait, time.Duration(pinned.Def.PollTimeout)*time.Millisecond)
		key.DefID = pinned.DefID
		info, err := q.store.Queues().Ensure(ctx, store.API, key)
		if err != nil {
			return nil, 0, fmt.Errorf("queue %q: %w", ask.Queue, err)
		}
		if !slices.ContainsFunc(out, func(s served) bool { return s.info.QueueAt == info.QueueAt }) {
			out = append(out, served{info, min(max(ask.Count, 1), 100)})
		}
	}
	return out, wait, nil
}

// requestClaim is the claim id of a request id: a hash over key, worker, queues and the id.
func requestClaim(r Request) int64 {
	names := make([]string, len(r.Queues))
	for i, a := range r.Queues {
		names[i] = a.Queue
	}
	slices.Sort(names)
	parts := append([]string{r.Key, r.Worker, r.Namespace, r.RequestID}, names...)
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)) >> 1)
}

// leasing is one request on its way.
type leasing struct {
	q         *Queue
	r         Request
	queues    []served
	claimID   int64
	leased    []store.Leased
	inputs    map[store.LeaseKey][]byte // delivered by the engine together with the lease
	throttled map[store.QueueAt]*Throttled
}

// repeated looks for the leases that the same request was given before.
func (l *leasing) repeated(ctx context.Context) error {
	for _, s := range l.queues {
		leased, err := l.q.store.ClaimLookup(ctx, store.API, s.info.QueueAt, l.claimID, 0, repeatWithin)
		if err != nil {
			return err
		}
		l.leased = append(l.leased, leased...)
	}
	return nil
}

// run claims at once and then waits in the lines of the queues.
func (l *leasing) run(ctx context.Context, wait time.Duration) error {
	start := int(l.q.turn.Add(1))
	for i := range l.queues {
		s := l.queues[(start+i)%len(l.queues)]
		if wait > 0 && l.q.hub.waits(s.info.QueueAt) {
			continue // others wait there already: their place comes first
		}
		if _, _, err := l.claim(ctx, s); err != nil {
			return err
		}
	}
	if len(l.leased) > 0 || wait <= 0 || l.q.isStopped() {
		return nil
	}
	return l.wait(ctx, wait)
}

// claim leases from one queue; a busy gate is tried again as long as the caller has time. full says that all that was wanted came.
func (l *leasing) claim(ctx context.Context, s served) (full, blocked bool, err error) {
	c := store.Claim{Queue: s.info.QueueAt, Want: s.want, ClaimID: l.claimID, LeaseMs: l.r.LeaseMs, Worker: l.r.Worker}
	var got Claimed
	for range busyTries {
		got, err = l.q.claimer.Claim(ctx, store.API, c)
		if !errors.Is(err, store.ErrBusy) || !pause(ctx, busyWait()) {
			break
		}
	}
	if errors.Is(err, store.ErrBusy) {
		return false, true, nil // as if the gate were closed: the next look comes soon
	}
	if _, unknown := errors.AsType[*store.CommitUnknownError](err); unknown {
		l.q.doubt(doubt{queue: s.info.QueueAt, claimID: l.claimID, repeatable: l.r.RequestID != ""})
	}
	if err != nil {
		return false, false, fmt.Errorf("claiming from queue %q: %w", s.info.Key.Name, err)
	}
	l.leased = append(l.leased, got.Leased...)
	if got.Throttled != nil {
		l.throttled[s.info.QueueAt] = got.Throttled
	} else {
		delete(l.throttled, s.info.QueueAt)
	}
	if len(got.Freed) > 0 {
		l.q.Ready(got.Freed)
	}
	l.q.polls.result(s.info.QueueAt, l.r.Worker, len(got.Leased), got.Throttled != nil)
	return len(got.Leased) == s.want, got.Throttled != nil, nil
}

const busyTries = 3

// busyWait is how long a claim waits after a gate was busy: 50–150 ms.
func busyWait() time.Duration {
	return 50*time.Millisecond + time.Duration(mathrand.Int64N(int64(100*time.Millisecond)))
}

// wait parks in the lines of the queues until something is leased or the time is over. It holds no connection.
func (l *leasing) wait(ctx context.Context, wait time.Duration) error {
	p := &poll{
		want: map[store.QueueAt]int{}, worker: l.r.Worker, leaseMs: max(l.r.LeaseMs, 0), claimID: l.claimID,
		wake: make(chan store.QueueAt, 1), filled: make(chan struct{}, 1),
	}
	if p.leaseMs == 0 {
		p.leaseMs = store.MaxLease
	}
	infos := make([]store.QueueInfo, len(l.queues))
	byAt := map[store.QueueAt]served{}
	for i, s := range l.queues {
		infos[i] = s.info
		p.queues = append(p.queues, s.info.QueueAt)
		p.want[s.info.QueueAt] = s.want
		byAt[s.info.QueueAt] = s
	}
	l.q.hub.park(p, infos, l.q.GateTags)
	defer func() { l.given(l.q.hub.leave(p)) }()
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		select {
		case at := <-p.wake:
			full, blocked, err := l.claim(ctx, byAt[at])
			l.q.hub.claimed(p, at, full, blocked)
			if err != nil || len(l.leased) > 0 {
				return err
			}
		case <-p.filled:
			l.given(l.q.hub.take(p))
			return nil
		case <-end.C:
			return nil
		case <-l.q.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// given takes what the engine leased for this poll.
func (l *leasing) given(all []Given) {
	for _, g := range all {
		if l.inputs == nil {
			l.inputs = map[store.LeaseKey][]byte{}
		}
		l.leased = append(l.leased, g.Lease)
		if g.Input != nil {
			l.inputs[g.Lease.Key()] = g.Input
		}
		l.q.polls.result(store.QueueAt{NS: g.Lease.NS, QueueID: g.Lease.QueueID}, l.r.Worker, 1, false)
	}
}

// answer reads the inputs and signs the tokens. If that fails the leases go back.
func (l *leasing) answer(ctx context.Context) (Answer, error) {
	var a Answer
	for _, s := range l.queues {
		if t := l.throttled[s.info.QueueAt]; t != nil {
			a.Throttled = append(a.Throttled, *t)
		}
	}
	if len(l.leased) == 0 {
		return a, nil
	}
	signer, err := l.q.signerNow(ctx)
	if err == nil {
		err = l.readInputs(ctx)
	}
	if err == nil {
		err = ctx.Err() // the client has gone
	}
	if err != nil {
		l.q.GiveBack(context.WithoutCancel(ctx), l.leased)
		return Answer{}, err
	}
	snapshot := l.q.opt.Registry.Snapshot()
	for _, one := range l.leased {
		t := Task{Leased: one, Input: l.inputs[one.Key()], Token: signer.Sign(l.r.Namespace, TaskID(one.Exec, one.TaskNo, one.Attempt.Attempt), one.Fence)}
		if info, ok := l.q.store.Queues().KnownAt(store.QueueAt{NS: one.NS, QueueID: one.QueueID}); ok {
			t.Queue = info.Key.Name
		}
		if pinned, ok := snapshot.TaskRev(one.NS, one.DefRev); ok {
			t.Definition, t.HeartbeatTimeout = pinned.Def, pinned.Def.HeartbeatTimeout
		}
		a.Tasks = append(a.Tasks, t)
	}
	return a, nil
}

// readInputs reads the inputs that did not come with the leases, and the definitions that this process has not seen.
func (l *leasing) readInputs(ctx context.Context) error {
	if l.inputs == nil {
		l.inputs = map[store.LeaseKey][]byte{}
	}
	var missing []store.Leased
	var revs []int32
	for _, one := range l.leased {
		if _, ok := l.inputs[one.Key()]; !ok {
			missing = append(missing, one)
		}
		if one.DefRev != 0 && !slices.Contains(revs, one.DefRev) {
			revs = append(revs, one.DefRev)
		}
	}
	if len(missing) > 0 {
		bodies, err := l.q.store.LeaseInputs(ctx, store.API, missing)
		if err != nil {
			return fmt.Errorf("reading inputs: %w", err)
		}
		for i, one := range missing {
			l.inputs[one.Key()] = bodies[i]
		}
	}
	return l.q.opt.Registry.LoadTaskRevs(ctx, l.r.NS, revs)
}

func (q *Queue) isStopped() bool {
	select {
	case <-q.stop:
		return true
	default:
		return false
	}
}

// signerNow gives the signer, read once.
func (q *Queue) signerNow(ctx context.Context) (Signer, error) {
	if s := q.signer.Load(); s != nil {
		return *s, nil
	}
	keys, err := q.store.InstallKeys(ctx)
	if err != nil {
		return Signer{}, fmt.Errorf("keys of the installation: %w", err)
	}
	s := NewSigner(keys)
	q.signer.Store(&s)
	return s, nil
}

// pause waits; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
