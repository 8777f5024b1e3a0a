package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema/jsontext"
)

// Refusals of a start that callers branch on. An unknown namespace, workflow or version is store.ErrNotFound.
var (
	ErrSchemaViolation     = errors.New("the input does not match the workflow's inputSchema")
	ErrRetired             = errors.New("the workflow is retired")
	ErrIdempotencyMismatch = errors.New("the idempotency key was used with another workflow, version or input")
	ErrTooLarge            = errors.New("the input is over the limit of 6 MiB")
)

// maxStarts is how many executions one transaction starts (S6).
const maxStarts = 250

// StartRequest asks for an execution.
type StartRequest struct {
	Namespace string
	Workflow  string
	Version   int64          // 0 = in force
	Input     map[string]any // as decoded with json.Number; nil = {}
	Key       string         // idempotency key, 1–255 characters; "" = none
}

// StartResult answers a StartRequest. With Err nothing was started, unless it is ErrUnknownOutcome.
type StartResult struct {
	ID       execution.ID
	Created  bool // false: the key was known, ID is the execution it named
	Revision int32
	Status   string // RUNNING, or how it ended at once
	Err      error
}

// Start starts executions, each judged by itself, in order, in batches with those of others (S6). A start with a known key is answered
// before anything else is judged.
func (e *Engine) Start(ctx context.Context, requests []StartRequest) []StartResult {
	jobs := make([]*startJob, len(requests))
	for i := range requests {
		jobs[i] = e.prepare(ctx, &requests[i])
	}
	e.starter.push(jobs...)
	out := make([]StartResult, len(requests))
	for i, j := range jobs {
		out[i] = j.wait(e)
	}
	return out
}

// startJob is one start on its way.
type startJob struct {
	ctx     context.Context
	id      execution.ID
	rev     registry.WorkflowRev
	prog    *program
	input   []byte
	key     string
	hash    [32]byte
	refusal error
	answer  chan StartResult
	unknown bool
	tries   int
}

func (j *startJob) reply(r StartResult) {
	if r.Err != nil && j.unknown {
		r.Err = ErrUnknownOutcome
	}
	select {
	case j.answer <- r:
	default:
	}
}

func (j *startJob) wait(e *Engine) StartResult {
	r, err := await(j.ctx, e, j.answer)
	if err != nil {
		return StartResult{Err: err}
	}
	return r
}

// prepare does what needs no transaction: the revision, the program, the input.
func (e *Engine) prepare(ctx context.Context, r *StartRequest) *startJob {
	j := &startJob{ctx: ctx, key: r.Key, answer: make(chan StartResult, 1)}
	ns, ok := e.opt.Registry.Snapshot().Namespace(r.Namespace)
	j.id = execution.ID{NS: ns, Exec: e.newID()}
	j.refusal = e.judge(ctx, j, r)
	if !ok && j.refusal != nil {
		j.key = ""
	}
	if j.id.NS == 0 { // a namespace that this process had not seen
		j.id.NS = j.rev.NS
	}
	return j
}

func (e *Engine) judge(ctx context.Context, j *startJob, r *StartRequest) error {
	input := r.Input
	if input == nil {
		input = map[string]any{}
	}
	text, err := jsontext.Encode(input)
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	if len(text) > execution.MaxPayload {
		return ErrTooLarge
	}
	j.input = text
	if r.Key != "" {
		if j.hash, err = hashOf(r, input); err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	if j.rev, err = e.opt.Registry.Workflow(ctx, r.Namespace, r.Workflow, r.Version); err != nil {
		return err
	}
	if j.rev.Retired {
		return fmt.Errorf("workflow %s: %w", r.Workflow, ErrRetired)
	}
	if j.rev.CheckInput != nil {
		if err := j.rev.CheckInput(input); err != nil {
			return fmt.Errorf("%w: %w", ErrSchemaViolation, err)
		}
	}
	j.prog, err = e.programs.add(j.rev.NS, j.rev)
	return err
}

// hashOf is what the comparison of a repeated key covers (contract 4.2): workflow, the version asked for and the canonical input.
func hashOf(r *StartRequest, input map[string]any) ([32]byte, error) {
	text := append([]byte(r.Workflow), 0)
	text = strconv.AppendInt(text, r.Version, 10)
	text, err := jsontext.AppendCanonical(append(text, 0), input)
	return sha256.Sum256(text), err
}

func (e *Engine) newID() execution.UUID {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	return execution.NewUUID(e.dbNow(), random)
}

// starter runs starts in batches: a batch starts when the one before has returned.
type starter struct {
	e      *Engine
	mu     sync.Mutex
	queue  []*startJob
	signal chan struct{}
}

func newStarter(e *Engine) *starter { return &starter{e: e, signal: make(chan struct{}, 1)} }

func (s *starter) push(jobs ...*startJob) {
	s.mu.Lock()
	s.queue = append(s.queue, jobs...)
	s.mu.Unlock()
	wake(s.signal)
}

func (s *starter) take() []*startJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []*startJob
	bytes := 0
	for len(s.queue) > 0 && len(batch) < maxStarts {
		j := s.queue[0]
		if len(batch) > 0 && bytes+len(j.input) > maxBytes {
			break
		}
		s.queue = s.queue[1:]
		if j.ctx.Err() != nil && !j.unknown {
			j.reply(StartResult{Err: context.Cause(j.ctx)})
			continue
		}
		bytes += len(j.input)
		batch = append(batch, j)
	}
	if len(s.queue) > 0 {
		wake(s.signal) // for the other starter
	}
	return batch
}

func (s *starter) run(ctx context.Context) error {
	f := newFlusher(s.e, 0)
	for {
		if jobs := s.take(); len(jobs) > 0 {
			s.flush(ctx, f, jobs)
			continue
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			for jobs := s.take(); len(jobs) > 0 && end.Err() == nil; jobs = s.take() {
				s.flush(end, f, jobs)
			}
			return nil
		}
	}
}

// flush sees starts through: every one is answered or back in the queue when it returns.
func (s *starter) flush(ctx context.Context, f *flusher, jobs []*startJob) {
	fetches, tries := 0, 0
	for {
		if jobs = s.settled(ctx, jobs); len(jobs) == 0 {
			return
		}
		b := &startBatch{flush: newFlush(f, nil), jobs: jobs}
		err := b.once(ctx)
		if err == nil {
			f.away = 0
			b.committed(ctx)
			for _, r := range b.answers {
				r.job.reply(r.result)
			}
			s.e.standing(ctx, b.known)
			return
		}
		b.rolledBack(err)
		var missing *missingError
		var unknown *store.CommitUnknownError
		switch {
		case errors.As(err, &missing) && fetches < 2*maxJobs:
			fetches++
			if err := s.e.fetch(ctx, missing); err != nil {
				s.later(ctx, f, jobs, err)
				return
			}
		case errors.As(err, &unknown):
			f.shard = s.e.shards.swap(f.shard)
			for _, j := range jobs {
				j.unknown = true
			}
			s.flush(ctx, f, jobs)
			s.e.settle(ctx, b.seats)
			return
		case noPartition(err) && fetches == 0:
			fetches++
			if err := s.e.store.MakeDay(ctx, jobs[0].id.Exec); err != nil {
				s.e.log.Warn("start: partition of a day", "error", err)
			}
		case store.TryAgain(err) && tries < tryLimit:
			tries++
			pause(ctx, jitter(20*time.Millisecond))
		case len(jobs) > 1 && (store.TryAgain(err) || store.TooMuch(err) || store.Code(err) == "57014"):
			s.flush(ctx, f, jobs[:len(jobs)/2])
			s.flush(ctx, f, jobs[len(jobs)/2:])
			return
		case store.TooMuch(err) && jobs[0].tries > 0:
			jobs[0].reply(StartResult{Err: err})
			return
		case store.TooMuch(err):
			jobs[0].tries++ // once more: its own old transaction may have committed meanwhile
		default:
			s.later(ctx, f, jobs, err)
			return
		}
	}
}

// later puts starts back after an error that is not theirs; those whose caller has gone are answered by take.
func (s *starter) later(ctx context.Context, f *flusher, jobs []*startJob, err error) {
	f.away++
	if f.away == 1 || f.away%20 == 0 {
		s.e.log.Warn("start: the database did not take a batch", "starts", len(jobs), "error", err)
	}
	if ctx.Err() != nil || errors.Is(err, store.ErrNotFound) {
		for _, j := range jobs {
			j.reply(StartResult{Err: err})
		}
		return
	}
	pause(ctx, jitter(min(5*time.Second, 10*time.Millisecond<<min(f.away, 9))))
	s.mu.Lock()
	s.queue = append(jobs, s.queue...) //nolint:gocritic // they were first
	s.mu.Unlock()
	wake(s.signal)
}

// settled answers starts of unknown outcome that are there (S0), and gives the others: they are sent again with the same ids.
func (s *starter) settled(ctx context.Context, jobs []*startJob) []*startJob {
	var asked []*startJob
	for _, j := range jobs {
		if j.unknown {
			asked = append(asked, j)
		}
	}
	if len(asked) == 0 {
		return jobs
	}
	there, err := s.e.there(ctx, asked)
	if err != nil {
		s.e.log.Warn("start: looking for starts with unknown end", "starts", len(asked), "error", err)
	}
	var rest []*startJob
	for _, j := range jobs {
		if status, ok := there[j.id]; ok {
			j.reply(StartResult{ID: j.id, Created: true, Revision: j.rev.Revision, Status: status})
			continue
		}
		if j.unknown && j.ctx.Err() != nil {
			j.reply(StartResult{Err: ErrUnknownOutcome})
			continue
		}
		rest = append(rest, j)
	}
	return rest
}

// there says which executions exist and how they stand.
func (e *Engine) there(ctx context.Context, jobs []*startJob) (map[execution.ID]string, error) {
	out := map[execution.ID]string{}
	err := e.store.InTx(ctx, store.Hot, "find-starts", func(ctx context.Context, tx *store.Tx) error {
		days := map[string][]execution.ID{}
		var all []execution.ID
		for _, j := range jobs {
			all = append(all, j.id)
			days[j.id.Exec.Day()] = append(days[j.id.Exec.Day()], j.id)
		}
		for day, ids := range days { // closed ones first: one that closes between the two reads is found open by none
			closed, err := tx.ClosedAs(ctx, day, ids)
			if err != nil {
				return err
			}
			for id, c := range closed {
				out[id] = c.Status.String()
			}
		}
		open, err := tx.Peek(ctx, all, nil)
		if err != nil {
			return err
		}
		for id := range open.Execs {
			out[id] = execution.NameRunning
		}
		for day, ids := range days {
			closed, err := tx.ClosedAs(ctx, day, ids)
			if err != nil {
				return err
			}
			for id, c := range closed {
				out[id] = c.Status.String()
			}
		}
		return nil
	})
	return out, err
}

// startBatch is one transaction of starts.
type startBatch struct {
	*flush
	jobs    []*startJob
	answers []startReply
	known   []startReply // their keys were known: answered from what stands
}

type startReply struct {
	job    *startJob
	result StartResult
}

func (b *startBatch) once(ctx context.Context) error {
	b.f.w.Reset()
	return b.e.store.InTx(ctx, store.Hot, "start", func(ctx context.Context, tx *store.Tx) error {
		fresh, err := b.claimKeys(ctx, tx)
		if err != nil || len(fresh) == 0 {
			return err
		}
		if b.now, err = tx.Now(ctx); err != nil {
			return err
		}
		b.e.saw(b.now)
		for _, j := range fresh {
			b.begin(j)
		}
		if err := b.decide(ctx, tx); err != nil {
			return err
		}
		if err := b.force(ctx, tx); err != nil {
			return err
		}
		if err := b.apply(); err != nil {
			return err
		}
		for _, ev := range b.evals {
			b.f.w.Payload(ev.id, 0, store.PartInput, 0, ev.view.Input)
		}
		for _, j := range fresh {
			status := execution.NameRunning
			if c := b.of[j.id].decision.Closing; c != nil && !b.of[j.id].forced.more {
				status = c.Status.String()
			}
			b.say(j, StartResult{ID: j.id, Created: true, Revision: j.rev.Revision, Status: status})
		}
		b.leases, err = tx.Write(ctx, b.f.w, b.now, b.f.shard)
		return err
	})
}

func (b *startBatch) say(j *startJob, r StartResult) { b.answers = append(b.answers, startReply{j, r}) }

// begin puts an execution up for its first evaluation.
func (b *startBatch) begin(j *startJob) {
	h := execution.Header{
		ID: j.id, Seq: 1, StartedAt: b.now, AdmittedAt: b.now, DefID: j.rev.DefID, RevID: j.rev.RevID, NextNo: 1,
	}
	ev := b.evalOf(h)
	ev.fresh, ev.prog = true, j.prog
	ev.view.Input, ev.view.HasInput = j.input, true
	ev.view.HasVars = true
	ev.facts = []execution.Fact{execution.Started{}}
	b.counts.begun(ev)
}

// claimKeys takes the idempotency keys of the batch (L0), answers what is known or refused, and gives the starts that are to happen.
func (b *startBatch) claimKeys(ctx context.Context, tx *store.Tx) ([]*startJob, error) {
	type name struct {
		ns  int32
		key string
	}
	first := map[name]*startJob{}
	var claim, ask []store.IdemKey
	for _, j := range b.jobs {
		n := name{j.id.NS, j.key}
		if j.key == "" || first[n] != nil && first[n].refusal == nil {
			continue
		}
		k := store.IdemKey{NS: j.id.NS, Key: j.key, Exec: j.id.Exec, Hash: j.hash}
		if j.refusal != nil {
			ask = append(ask, k)
			continue
		}
		first[n] = j
		claim = append(claim, k)
	}
	known := map[name]store.IdemKey{}
	for _, list := range []struct {
		keys []store.IdemKey
		read func(context.Context, []store.IdemKey) ([]store.IdemKey, error)
	}{{claim, tx.ClaimIdem}, {ask, tx.Idem}} {
		if len(list.keys) == 0 {
			continue
		}
		rows, err := list.read(ctx, list.keys)
		if err != nil {
			return nil, err
		}
		for _, k := range rows {
			known[name{k.NS, k.Key}] = k
		}
	}
	var fresh []*startJob
	for _, j := range b.jobs {
		n := name{j.id.NS, j.key}
		k, isKnown := known[n]
		if f := first[n]; j.key != "" && !isKnown && f != nil && f != j && j.refusal == nil { // the same key twice in one batch
			k, isKnown = store.IdemKey{Exec: f.id.Exec, Hash: f.hash}, true
		}
		switch {
		case j.key != "" && isKnown && k.Hash != j.hash:
			b.say(j, StartResult{Err: ErrIdempotencyMismatch})
		case j.key != "" && isKnown:
			b.known = append(b.known, startReply{j, StartResult{
				ID: execution.ID{NS: j.id.NS, Exec: k.Exec}, Created: k.Exec == j.id.Exec && j.unknown,
			}})
		case j.refusal != nil:
			b.say(j, StartResult{Err: j.refusal})
		default:
			fresh = append(fresh, j)
		}
	}
	return fresh, nil
}

// standing answers starts with known keys, after the transaction: how those executions stand, and their revision. An execution whose day is
// gone while its key is still kept has no status.
func (e *Engine) standing(ctx context.Context, known []startReply) {
	for _, r := range known {
		brief, err := e.store.Brief(ctx, r.result.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			r.result = StartResult{Err: err}
		default:
			r.result.Revision, r.result.Status = brief.Revision, execution.NameRunning
			if brief.Status != execution.StatusOpen {
				r.result.Status = brief.Status.String()
			}
		}
		r.job.reply(r.result)
	}
}
