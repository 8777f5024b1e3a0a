package worker

import (
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
	"nf/schema"
	"nf/systemtasks"
)

const (
	// DefaultExecutors is the number of calls at once of one physical queue; ten times as many a runner (contract 5.1, --executors).
	DefaultExecutors = 20
	perRunner        = 10
	// DefaultDrain is how long calls under way may go on when the pool shuts down.
	DefaultDrain = 10 * time.Second

	lookSoon   = 50 * time.Millisecond
	lookEvery  = time.Second
	lookProven = 5 * time.Second
	// claimsAtOnce bounds the claims of a pool that are under way.
	claimsAtOnce = 4
	// watchEvery is how often the leases of calls under way are looked up.
	watchEvery = time.Second
	// afterDrain is how long the pool waits for calls that it has canceled.
	afterDrain = 5 * time.Second
)

// Options are what a Pool needs. Notifier, Metrics and Log may be nil.
type Options struct {
	Store    *store.Store
	Registry *registry.Registry
	Queue    *queue.Queue
	Runner   *queue.Runner
	Notifier *store.Notifier
	Catalog  systemtasks.Catalog
	// Secrets resolves secrets at dispatch; nil = none can be resolved.
	Secrets   func(ctx context.Context, namespace string, ref schema.SecretRef) (string, error)
	Executors int           // 0 = DefaultExecutors
	Drain     time.Duration // 0 = DefaultDrain
	Clock     clock.Clock
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
}

// Pool runs the system tasks of one process. Safe for concurrent use.
type Pool struct {
	opt   Options
	store *store.Store
	wake  chan struct{}
	nodes nodes

	// Set by Run, before the first call.
	engine *engine.Engine

	mu     sync.Mutex
	lines  map[store.QueueAt]*line
	order  []*line // rotation: served longest ago first
	busy   int     // places taken, claims under way included
	claims int
	calls  map[store.LeaseKey]*call
	closed bool
	tasks  sync.WaitGroup
	// base is the context of every call: canceled at the end of the drain.
	base   context.Context //nolint:containedctx // calls outlive the loop that began them
	cancel context.CancelFunc
}

// line is one physical queue.
type line struct {
	info    store.QueueInfo
	running int  // places taken
	dirty   bool // there may be work
	blocked bool // a gate held something back: only a freed place or the periodic look make it dirty again
	claims  bool // a claim is under way
	tags    []string
}

// New makes a Pool. Tell the queue about it before Run of either.
func New(opt Options) *Pool {
	if opt.Executors <= 0 {
		opt.Executors = DefaultExecutors
	}
	if opt.Drain <= 0 {
		opt.Drain = DefaultDrain
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{
		opt: opt, store: opt.Store, wake: make(chan struct{}, 1), lines: map[store.QueueAt]*line{}, calls: map[store.LeaseKey]*call{},
	}
	p.nodes.init(opt.Registry)
	opt.Queue.OnReady(p.ready)
	opt.Queue.OnFreed(p.freed)
	return p
}

// Run claims and executes until ctx ends, then claims nothing more, lets calls under way go on for the drain, cancels what is left, gives it back, and
// returns. The engine, which was made with the pool as one of its Eager, must run longer than the pool.
func (p *Pool) Run(ctx context.Context, e *engine.Engine) error {
	p.mu.Lock()
	p.engine = e
	p.base, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Unlock()
	defer p.cancel()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.serve(gctx) })
	g.Go(func() error { return p.looking(gctx) })
	g.Go(func() error { return p.watching(gctx) })
	err := g.Wait()
	p.drain(ctx)
	return err
}

// drain ends the pool.
func (p *Pool) drain(ctx context.Context) {
	p.opt.Runner.Drain()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.tasks.Wait()
		close(done)
	}()
	t := time.NewTimer(p.opt.Drain)
	defer t.Stop()
	left := time.NewTimer(p.opt.Drain + time.Hour)
	defer left.Stop()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case <-done:
			return
		case <-watch.C:
			p.watch(context.WithoutCancel(ctx))
		case <-t.C:
			p.cancel()
			left.Reset(afterDrain)
		case <-left.C: // a task that does not honour its context: its lease ends with the runner
			p.opt.Log.Warn("calls are left behind that do not end", telemetry.KeyCount, p.Busy())
			return
		}
	}
}

// serves says whether this process can execute what waits in a queue: it has the task type.
func (p *Pool) serves(q store.QueueInfo) bool {
	parts := strings.SplitN(q.Key.Name, ".", 3)
	if !q.Key.System || len(parts) < 2 {
		return false
	}
	_, ok := p.opt.Catalog.Get(schema.TaskType(parts[1]))
	return ok
}

// line gives the line of a queue, nil if this process cannot serve it. Called under the lock.
func (p *Pool) line(info store.QueueInfo) *line {
	l, ok := p.lines[info.QueueAt]
	if !ok && p.serves(info) {
		l = &line{info: info, tags: p.opt.Queue.GateTags(info)}
		p.lines[info.QueueAt] = l
		p.order = slices.Insert(p.order, 0, l) // never served: before all others
	}
	return l
}

// ready says that a queue has got work. It never blocks.
func (p *Pool) ready(at store.QueueAt) {
	info, known := p.store.Queues().KnownAt(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[at]
	if l == nil && known {
		l = p.line(info)
	}
	if l != nil && !l.blocked {
		l.dirty = true
	}
	if l != nil || !known { // a queue that another process has made: look
		p.kick()
	}
}

// freed says that places are free under some gates. It never blocks.
func (p *Pool) freed(tags []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if slices.ContainsFunc(tags, func(t string) bool { return slices.Contains(l.tags, t) }) {
			l.blocked, l.dirty = false, true
		}
	}
	p.kick()
}

func (p *Pool) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// serve hands free places to queues that may have work.
func (p *Pool) serve(ctx context.Context) error {
	for {
		for {
			l, want := p.next()
			if l == nil {
				break
			}
			go p.claim(ctx, l, want)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
}

// next picks the queue to claim from and how much: queues without a call come first, then in rotation. Each queue that has none and may have
// work is left one place at least.
func (p *Pool) next() (*line, int) {
	if _, _, ok := p.opt.Runner.Claims(); !ok {
		return nil, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.opt.Executors*perRunner - p.busy
	if free <= 0 || p.claims >= claimsAtOnce || p.closed {
		return nil, 0
	}
	var best *line
	starved := 0
	for _, l := range p.order {
		if !l.dirty || l.claims || l.running >= p.opt.Executors {
			continue
		}
		if l.running == 0 {
			starved++
		}
		if best == nil || (l.running == 0 && best.running > 0) {
			best = l
		}
	}
	if best == nil {
		return nil, 0
	}
	if best.running == 0 {
		starved--
	}
	want := min(p.opt.Executors-best.running, max(free-starved, 0))
	if want == 0 && best.running == 0 {
		want = 1
	}
	if want == 0 {
		return nil, 0
	}
	p.rotate(best)
	best.claims, best.dirty = true, false
	best.running += want
	p.busy += want
	p.claims++
	return best, want
}

// rotate moves a line to the end of the rotation.
func (p *Pool) rotate(l *line) {
	if i := slices.Index(p.order, l); i >= 0 {
		p.order = append(slices.Delete(p.order, i, i+1), l)
	}
}

// claim leases from a queue and begins what it was given.
func (p *Pool) claim(ctx context.Context, l *line, want int) {
	no, lost, _ := p.opt.Runner.Claims()
	got, err := p.opt.Queue.Claimer().Claim(ctx, store.Hot, store.Claim{
		Queue: l.info.QueueAt, Want: want, Holder: no, ClaimID: p.opt.Queue.NextClaim(),
	})
	if len(got.Freed) > 0 {
		p.opt.Queue.Ready(got.Freed)
	}
	p.begin(l, no, lost, got.Leased, nil) //nolint:contextcheck // calls outlive the loop that claims: they end with the drain
	p.mu.Lock()
	unused := want - len(got.Leased)
	l.running -= unused
	p.busy -= unused
	p.claims--
	l.claims = false
	switch {
	case errors.Is(err, store.ErrBusy):
		time.AfterFunc(50*time.Millisecond+time.Duration(mathrand.Int64N(int64(100*time.Millisecond))), func() { p.ready(l.info.QueueAt) })
	case err != nil:
		l.blocked = false // the next look tries again
	case got.Throttled != nil:
		l.blocked = true
	default:
		l.blocked = false
		l.dirty = l.dirty || unused == 0
	}
	p.kick()
	p.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrBusy) {
		p.failed(ctx, "claim", err)
	}
}

// begin starts calls for leases whose places are taken already.
func (p *Pool) begin(l *line, no int32, lost <-chan struct{}, leased []store.Leased, inputs map[store.LeaseKey][]byte) {
	if len(leased) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	batch := &batch{pool: p, leased: leased, inputs: inputs}
	for _, one := range leased {
		ctx, cancel := context.WithCancel(p.base)
		c := &call{pool: p, line: l, lease: one, batch: batch, runner: no, cancel: cancel, gone: make(chan struct{})}
		p.calls[one.Key()] = c
		p.tasks.Go(func() {
			defer cancel()
			stop := c.watchRunner(lost)
			defer stop()
			c.run(ctx)
			p.finished(c)
		})
	}
}

func (p *Pool) finished(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c.lease.Key())
	c.line.running--
	p.busy--
	p.kick()
}

// Mine says whether a lease is in the memory of this pool: what is leased to this runner and is not came from a COMMIT that arrived late.
func (p *Pool) Mine(key store.LeaseKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.calls[key]
	return ok
}

// Busy gives the number of places taken.
func (p *Pool) Busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}

// looking finds work that nobody announced: queues are listed every 5 s (1 s without a proven listener), and those with room are asked, in one
// statement, whether they hold anything.
func (p *Pool) looking(ctx context.Context) error {
	wait := lookSoon
	var listed time.Time
	for {
		longest := lookEvery
		proven := p.opt.Notifier != nil && p.opt.Notifier.Proven()
		if proven {
			longest = lookProven
		}
		now := p.opt.Clock.Now()
		if listed.IsZero() || now.Sub(listed) >= longest {
			if err := p.list(ctx); err != nil {
				p.failed(ctx, "look", err)
			} else {
				listed = now
			}
		}
		found, blocked, err := p.look(ctx)
		if err != nil {
			p.failed(ctx, "look", err)
		}
		if blocked {
			longest = lookEvery
		}
		wait = min(2*wait, longest)
		if found {
			wait = lookSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.NewTimer(wait*4/5 + time.Duration(mathrand.Int64N(int64(wait*2/5)+1))).C:
		}
	}
}

func (p *Pool) list(ctx context.Context) error {
	all, err := p.store.Queues().System(ctx, store.Hot)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range all {
		if l := p.line(q); l != nil {
			l.tags = p.opt.Queue.GateTags(q)
		}
	}
	return nil
}

// look asks idle queues whether they hold anything; found says that one does which no gate blocked before, blocked that work is known which cannot
// be taken at present: the next look is soon.
func (p *Pool) look(ctx context.Context) (found, blocked bool, err error) {
	p.mu.Lock()
	var ask []store.QueueAt
	for _, l := range p.order {
		blocked = blocked || l.dirty // known work that waits for a place, or for the runner to beat again
		if !l.dirty && !l.claims && l.running < p.opt.Executors {
			ask = append(ask, l.info.QueueAt)
		}
	}
	p.mu.Unlock()
	if blocked {
		p.kick()
	}
	got, err := p.store.Discover(ctx, store.Hot, ask)
	if err != nil || len(got) == 0 {
		return false, blocked, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range got {
		l := p.lines[at]
		blocked = blocked || l.blocked
		found = found || !l.blocked
		l.dirty, l.blocked = true, false
	}
	p.kick()
	return found, blocked, nil
}

// watching cancels calls whose lease is gone.
func (p *Pool) watching(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.watch(ctx)
		}
	}
}

func (p *Pool) watch(ctx context.Context) {
	p.mu.Lock()
	keys := make([]store.LeaseKey, 0, len(p.calls))
	for key, c := range p.calls {
		if c.called {
			keys = append(keys, key)
		}
	}
	p.mu.Unlock()
	states, err := p.store.LeaseStates(ctx, store.Hot, keys)
	if err != nil {
		p.failed(ctx, "watch", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, st := range states {
		if c := p.calls[keys[i]]; c != nil && (!st.Found || st.Ending) {
			c.lose()
		}
	}
}

func (p *Pool) failed(ctx context.Context, loop string, err error) {
	if ctx.Err() != nil {
		return
	}
	p.opt.Log.Warn("worker loop failed", telemetry.KeyLoop, loop, telemetry.KeyError, err.Error())
}
