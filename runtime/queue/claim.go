package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"nf/policies/gate"
	"nf/policies/limit"
	"nf/runtime/clock"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

const (
	// fenceRest is how long a process counts a gate from its beginning after it first saw it: claims of the ungated form that began before
	// the gate was added are over by then.
	fenceRest = 15 * time.Second
	// turnWait is how long a claim waits for another claim of the same definition in this process.
	turnWait = 200 * time.Millisecond
	// setTries bounds how often a claim begins anew because the gates of the definition have changed under it.
	setTries = 3
	// verdictEvery bounds how often a verdict is written.
	verdictEvery = time.Second
)

// Verdict is the last refusal of a definition's gates as it is kept in the database (A22): who reads a task that waits shows it as control,
// limit, current, alsoClosed and heldSince. One that is older than VerdictFor says nothing any more: nobody claims the queue.
type Verdict struct {
	Control    string    `json:"control"`
	Limit      int64     `json:"limit"`
	Current    int64     `json:"current"`
	AlsoClosed []string  `json:"alsoClosed,omitempty"`
	Since      time.Time `json:"since"` // start of the unbroken run of refusals
}

// VerdictFor is how long a verdict holds without being renewed.
const VerdictFor = 15 * time.Second

// Throttled says that a gate left something unleased (A0.6). It is no error.
type Throttled struct {
	Queue      string // as it was asked for
	Control    string
	Limit      int64
	Current    int64
	AlsoClosed []string
	RetryAfter time.Duration // whole seconds ≥ 1, or 0 = only the end of other work can say
}

// Claimed is what a claim came to.
type Claimed struct {
	Leased []store.Leased
	// Throttled is set when a gate held back something that was there.
	Throttled *Throttled
	// Gated says which form the claim took.
	Gated bool
	// Freed are queues that got work back because lost leases were reclaimed on the way.
	Freed []store.QueueAt
}

// Claimer leases from physical queues through their gates (S1). It remembers low fences, and lets one claim of a definition at a time go to
// the database, so that pollers of a capped definition hold one connection, not the pool. Safe for concurrent use.
type Claimer struct {
	store *store.Store
	clock clock.Clock
	guard *clock.Guard
	defs  func() execution.Definitions

	mu    sync.Mutex
	gates map[store.ObjectAt]*memory
	sems  map[store.ObjectAt]int64
}

// memory is what a process knows about the gate of a definition.
type memory struct {
	turn    chan struct{} // holds one token
	changed time.Time     // of the definition's last change, as the database says
	since   time.Time     // own clock: first seen so
	low     int64         // no lease below it can appear any more
}

// NewClaimer makes a claimer. defs gives the definitions in force; guard says when lost work must not be reclaimed.
func NewClaimer(s *store.Store, c clock.Clock, guard *clock.Guard, defs func() execution.Definitions) *Claimer {
	return &Claimer{store: s, clock: c, guard: guard, defs: defs, gates: map[store.ObjectAt]*memory{}, sems: map[store.ObjectAt]int64{}}
}

// Claim leases up to c.Want tasks of one physical queue. store.ErrBusy: a gate was not had in time, try again in 50–150 ms. A *store.CommitUnknownError
// says that nothing is known to be leased: what may have been is the caller's to look up again.
func (cl *Claimer) Claim(ctx context.Context, lane store.Lane, c store.Claim) (Claimed, error) {
	c.Want = min(c.Want, 100)
	if c.Want < 1 {
		return Claimed{}, nil
	}
	got, err := cl.claim(ctx, lane, c)
	if _, unknown := errors.AsType[*store.CommitUnknownError](err); !unknown {
		return got, err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	leased, lookErr := cl.store.ClaimLookup(end, lane, c.Queue, c.ClaimID, 0, time.Minute)
	if lookErr != nil || len(leased) == 0 {
		return Claimed{}, err
	}
	return Claimed{Leased: leased}, nil
}

func (cl *Claimer) claim(ctx context.Context, lane store.Lane, c store.Claim) (Claimed, error) {
	if q, ok := cl.store.Queues().KnownAt(c.Queue); !ok || !q.Gated {
		leased, err := cl.store.ClaimPlain(ctx, lane, c)
		if !errors.Is(err, store.ErrGated) {
			return Claimed{Leased: leased}, err
		}
	}
	got, err := cl.claimGated(ctx, lane, c)
	if errors.Is(err, errUngated) {
		cl.store.Queues().Seen(c.Queue, false)
		leased, err := cl.store.ClaimPlain(ctx, lane, c)
		if errors.Is(err, store.ErrGated) { // gated again meanwhile
			err = fmt.Errorf("queue %d: %w: %w", c.Queue.QueueID, store.ErrBusy, err)
		}
		return Claimed{Leased: leased}, err
	}
	return got, err
}

var (
	errUngated = errors.New("queue has no gate")
	errSet     = errors.New("the gates of the definition have changed")
)

// claimGated is S1b.
func (cl *Claimer) claimGated(ctx context.Context, lane store.Lane, c store.Claim) (Claimed, error) {
	q, err := cl.store.Queues().ByID(ctx, lane, c.Queue)
	if err != nil {
		return Claimed{}, err
	}
	install, err := cl.store.InstallID(ctx)
	if err != nil {
		return Claimed{}, err
	}
	def := store.ObjectAt{NS: q.NS, ID: q.Key.DefID}
	m := cl.memory(def)
	if err := m.take(ctx); err != nil {
		return Claimed{}, err
	}
	defer m.leave()
	for range setTries {
		g := gated{cl: cl, claim: c, def: def, install: install, memory: m}
		if err = cl.store.InTx(ctx, lane, "claim_gated", g.run); err == nil {
			cl.remember(&g)
			return g.result(q.Key.Name), nil
		}
		if !errors.Is(err, errSet) {
			return Claimed{}, err
		}
	}
	return Claimed{}, fmt.Errorf("queue %q: %w: %w", q.Key.Name, store.ErrBusy, err)
}

func (cl *Claimer) memory(def store.ObjectAt) *memory {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	m, ok := cl.gates[def]
	if !ok {
		m = &memory{turn: make(chan struct{}, 1)}
		m.turn <- struct{}{}
		cl.gates[def] = m
	}
	return m
}

func (m *memory) take(ctx context.Context) error {
	t := time.NewTimer(turnWait)
	defer t.Stop()
	select {
	case <-m.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("gate: %w", store.ErrBusy)
	}
}

func (m *memory) leave() { m.turn <- struct{}{} }

// lows gives the marks to count from. Whoever calls it has the turn of the definition.
func (cl *Claimer) lows(m *memory, changed time.Time, sems []store.ObjectAt) store.LowFences {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := cl.clock.Now()
	if m.since.IsZero() || !m.changed.Equal(changed) {
		m.changed, m.since, m.low = changed, now, 0
	}
	low := store.LowFences{Semaphores: make(map[store.ObjectAt]int64, len(sems))}
	if now.Sub(m.since) >= fenceRest {
		low.Definition = m.low
	}
	for _, s := range sems {
		low.Semaphores[s] = cl.sems[s]
	}
	return low
}

// remember keeps the low fences of a claim that is known to be committed. Live fences only rise, so the larger mark is the better one.
func (cl *Claimer) remember(g *gated) {
	if !g.counted {
		return
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if g.settings.Cap > 0 {
		g.memory.low = max(g.memory.low, lowest(g.counts.DefLow, g.counts.NextFence))
	}
	for _, s := range g.counts.Semaphores {
		cl.sems[s.At] = max(cl.sems[s.At], lowest(s.Low, g.counts.NextFence))
	}
}

func lowest(live, next int64) int64 {
	if live > 0 {
		return live
	}
	return next
}

// gated is one try of S1b: a transaction, and what it found.
type gated struct {
	cl      *Claimer
	claim   store.Claim
	def     store.ObjectAt
	install execution.UUID
	memory  *memory

	settings store.GateSettings
	sems     []store.ObjectAt
	low      store.LowFences
	counts   store.GateCounts
	counted  bool
	verdict  gate.Verdict
	heads    []store.Head
	leased   []store.Leased
	freed    []store.QueueAt
}

func (g *gated) run(ctx context.Context, tx *store.Tx) error {
	if err := g.lock(ctx, tx); err != nil {
		return err
	}
	if g.verdict.Allow < g.claim.Want {
		if err := g.reclaim(ctx, tx); err != nil {
			return err
		}
	}
	if err := g.lease(ctx, tx); err != nil {
		return err
	}
	return g.settle(ctx, tx)
}

// lock learns which gates there are, takes them, and reads everything again under them (steps 1–3).
func (g *gated) lock(ctx context.Context, tx *store.Tx) error {
	before, sems, err := tx.GateLook(ctx, g.claim.Queue, g.def)
	if err != nil {
		return err
	}
	if !before.Gated || before.DefID == 0 {
		return errUngated
	}
	g.sems, g.low = sems, g.cl.lows(g.memory, before.Changed, sems)
	var heads []store.Head
	g.settings, g.counts, heads, err = tx.GateRead(ctx, store.GateAsk{
		Install: g.install, Queue: g.claim.Queue, Definition: g.def, Semaphores: sems, Limit: before.Cap, Low: g.low, Want: g.claim.Want,
	})
	switch {
	case err != nil:
		return err
	case !g.settings.Gated:
		return errUngated
	case g.settings.Cap != before.Cap || !g.settings.Changed.Equal(before.Changed):
		return errSet
	}
	g.heads = heads
	return g.decide()
}

// decide asks the policy what the counts allow (step 5).
func (g *gated) decide() error {
	g.counted = true
	controls := gate.Controls{ConcurrentExecLimit: g.settings.Cap}
	counts := gate.Counts{Definition: g.counts.Definition}
	for i, s := range g.counts.Semaphores {
		if i >= len(g.sems) || g.sems[i] != s.At {
			return errSet
		}
		s.Semaphore = s.Settle(g.settings.Now, s.WaiterAt.QueueID != 0)
		g.counts.Semaphores[i] = s
		controls.Semaphores = append(controls.Semaphores, s.Address)
		counts.Semaphores = append(counts.Semaphores, gate.Permits{Semaphore: s.Semaphore, Mine: g.mine(s)})
	}
	if len(g.counts.Semaphores) != len(g.sems) {
		return errSet
	}
	g.verdict = gate.Verdict{}
	if !g.settings.Suspended {
		g.verdict = gate.Dequeue(controls, counts, g.claim.Want, g.settings.Now)
	}
	return nil
}

// mine says whether the waiter of a semaphore stands in the queue that is claimed.
func (g *gated) mine(s store.SemaphoreCount) bool {
	return s.Waiter != (limit.Task{}) && s.WaiterAt == g.claim.Queue
}

// reclaim takes lost leases back that hold a place or a permit, and counts again (step 4). What must end instead is left to the sweeps.
func (g *gated) reclaim(ctx context.Context, tx *store.Tx) error {
	if g.cl.guard.Resting() {
		return nil
	}
	expired, err := tx.ExpiredLeases(ctx, g.def, g.settings.Cap, g.counts, g.low, g.settings.Now)
	if err != nil || len(expired) == 0 {
		return err
	}
	var moves []store.Move
	for _, l := range expired {
		if m, ok := Again(g.cl.defs(), l, g.settings.Now); ok {
			moves = append(moves, m)
			g.freed = append(g.freed, l.Queue())
		}
	}
	moved, err := tx.Redeliver(ctx, store.MoveLost, moves, g.settings.Now)
	if err != nil || len(moved) == 0 {
		return err
	}
	g.settings, g.counts, g.heads, err = tx.GateRead(ctx, store.GateAsk{
		Install: g.install, Queue: g.claim.Queue, Definition: g.def, Semaphores: g.sems, Limit: g.settings.Cap, Low: g.low, Want: g.claim.Want,
	})
	if err != nil {
		return err
	}
	return g.decide()
}

// Again says whether lost work may be delivered again (X4), and until when it must then start (contract 3.6: from the reclaim). False: a time-out
// is due, five deliveries are used up, its definition forbids it, or its definition is not at hand.
func Again(defs execution.Definitions, l store.LeaseRow, now time.Time) (store.Move, bool) {
	m := store.Move{LeaseKey: l.LeaseKey}
	if l.TimedOut(now) || l.Deliveries >= store.MaxDeliveries {
		return m, false
	}
	if l.DefRev == 0 {
		return m, true
	}
	pinned, ok := defs.TaskRev(l.NS, l.DefRev)
	if !ok || pinned.Def.Delivery == schema.AtMostOnce {
		return m, false
	}
	m.StartBy = StartBy(pinned.Def, now)
	return m, true
}

// StartBy is the scheduleToStart deadline of work that goes back to its queue at now; zero = not armed.
func StartBy(def *schema.TaskDefinition, now time.Time) time.Time {
	if def == nil || def.ScheduleToStartTimeout == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(def.ScheduleToStartTimeout) * time.Millisecond)
}

// lease takes the first rows of the queue, waiters of its semaphores before all others (step 7).
func (g *gated) lease(ctx context.Context, tx *store.Tx) error {
	g.heads = g.waitersFirst(g.heads)
	if g.verdict.Allow == 0 || len(g.heads) == 0 {
		return nil
	}
	var err error
	g.leased, err = tx.ClaimGated(ctx, g.claim, g.heads, g.verdict.Allow, g.settings.Now, g.sems)
	return err
}

func (g *gated) waitersFirst(heads []store.Head) []store.Head {
	var first []store.Head
	for _, reserved := range []bool{true, false} {
		for _, s := range g.counts.Semaphores {
			if g.mine(s) && s.Reserved() == reserved && !slices.Contains(first, s.Head) {
				first = append(first, s.Head)
			}
		}
	}
	for _, h := range heads {
		if !slices.Contains(first, h) {
			first = append(first, h)
		}
	}
	return first
}

// settle writes waiters and verdict (step 8).
func (g *gated) settle(ctx context.Context, tx *store.Tx) error {
	before := make([]limit.Semaphore, len(g.counts.Semaphores))
	after := make([]limit.Semaphore, len(before))
	for i, s := range g.counts.Semaphores {
		before[i], after[i] = s.Semaphore, s.Semaphore
		for _, l := range g.leased {
			after[i] = after[i].Leave(l.Task())
		}
	}
	if g.verdict.Full && len(g.heads) > 0 {
		after = limit.Skip(after, g.heads[0].Task, g.settings.Now)
	}
	for i, s := range g.counts.Semaphores {
		if after[i] == before[i] && !g.cleared(i) {
			continue
		}
		if err := tx.SetWaiter(ctx, s.At, after[i]); err != nil {
			return err
		}
	}
	return g.writeVerdict(ctx, tx)
}

// cleared says whether the place in the database is one that was found to be void.
func (g *gated) cleared(i int) bool {
	s := g.counts.Semaphores[i]
	return s.Waiter == (limit.Task{}) && s.Head.Task != (limit.Task{})
}

// held says whether a gate left something in the queue.
func (g *gated) held() bool { return g.verdict.Closed() && len(g.heads) > len(g.leased) }

func (g *gated) writeVerdict(ctx context.Context, tx *store.Tx) error {
	last, now := g.settings.Verdict, g.settings.Now
	if (last == nil && !g.held()) || now.Sub(g.settings.VerdictAt) < verdictEvery {
		return nil
	}
	if !g.held() {
		return tx.SetVerdict(ctx, g.def, nil, now)
	}
	v := Verdict{
		Control: string(g.verdict.Control), Limit: g.verdict.Limit, Current: g.verdict.Current, AlsoClosed: names(g.verdict.Others), Since: now,
	}
	var old Verdict
	if last != nil && json.Unmarshal(last, &old) == nil && !old.Since.IsZero() {
		v.Since = old.Since
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("verdict: %w", err)
	}
	return tx.SetVerdict(ctx, g.def, text, now)
}

func names(all []gate.Control) []string {
	var out []string
	for _, c := range all {
		out = append(out, string(c))
	}
	return out
}

func (g *gated) result(queue string) Claimed {
	out := Claimed{Leased: g.leased, Gated: true, Freed: g.freed}
	if g.held() {
		out.Throttled = &Throttled{
			Queue: queue, Control: string(g.verdict.Control), Limit: g.verdict.Limit, Current: g.verdict.Current, AlsoClosed: names(g.verdict.Others),
		}
		if !g.verdict.RetryAt.IsZero() {
			out.Throttled.RetryAfter = max(time.Second, g.verdict.RetryAt.Sub(g.settings.Now).Truncate(time.Second)+time.Second)
		}
	}
	return out
}
