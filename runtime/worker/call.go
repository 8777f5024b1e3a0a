package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"nf/runtime/decider"
	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
)

// batch reads the inputs of what was leased together, once.
type batch struct {
	pool   *Pool
	leased []store.Leased
	inputs map[store.LeaseKey][]byte

	once sync.Once
	err  error
}

// input gives the input of one lease of the batch.
func (b *batch) input(ctx context.Context, l store.Leased) ([]byte, error) {
	b.once.Do(func() {
		if b.inputs != nil {
			return
		}
		b.inputs = map[store.LeaseKey][]byte{}
		bodies, err := b.pool.store.LeaseInputs(ctx, store.Hot, b.leased)
		if err != nil {
			b.err = err
			return
		}
		for i, one := range b.leased {
			b.inputs[one.Key()] = bodies[i]
		}
	})
	return b.inputs[l.Key()], b.err
}

// call is one delivery under way.
type call struct {
	pool   *Pool
	line   *line
	lease  store.Leased
	batch  *batch
	runner int32
	cancel context.CancelFunc
	called bool // under the pool's lock: the task has begun

	loseOnce sync.Once
	gone     chan struct{} // closed: the lease is lost, nothing is to be reported
}

// lose cancels the call: its lease is gone, whoever has it now decides.
func (c *call) lose() {
	c.loseOnce.Do(func() {
		close(c.gone)
		c.cancel()
	})
}

func (c *call) lost() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// watchRunner loses the call with its runner's number.
func (c *call) watchRunner(lost <-chan struct{}) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-lost:
			c.lose()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// run takes the delivery to its end.
func (c *call) run(ctx context.Context) {
	request, task, failure, err := c.prepare(ctx)
	switch {
	case c.lost():
		return
	case err != nil:
		c.pool.failed(ctx, "prepare", err)
		c.release(ctx)
		return
	case failure != nil:
		c.report(ctx, *failure)
		return
	case ctx.Err() != nil || !c.pool.opt.Runner.Holds(c.runner):
		c.release(ctx) // not begun
		return
	}
	c.pool.mu.Lock()
	c.called = true
	c.pool.mu.Unlock()
	outcome := c.execute(ctx, task, request)
	if c.lost() {
		return
	}
	switch o := outcome.(type) {
	case systemtasks.Completed:
		c.report(ctx, completed(o))
	case systemtasks.Failed:
		c.report(ctx, failed(o))
	case systemtasks.Released:
		c.released(ctx, o)
	}
}

// execute calls the task so that neither a panic nor the end of its goroutine reaches the process.
func (c *call) execute(ctx context.Context, task systemtasks.Task, request systemtasks.Call) systemtasks.Outcome {
	answer := make(chan systemtasks.Outcome, 1)
	go func() {
		outcome := systemtasks.Outcome(systemtasks.Failed{
			Cause: string(execution.CauseWorkerFailed), Reason: fmt.Sprintf("the %s task gave no outcome: its goroutine ended", task.Type()),
		})
		defer func() {
			if p := recover(); p != nil { // its value and stack may hold what users must not see: the log only
				c.pool.opt.Log.Error("a task panicked", telemetry.KeyExecution, c.lease.Exec.String(), telemetry.KeyTask, c.lease.TaskNo,
					telemetry.KeyError, fmt.Sprint(p), "stack", string(debug.Stack()))
				outcome = systemtasks.Failed{
					Cause: string(execution.CauseWorkerFailed), Reason: fmt.Sprintf("the %s task panicked; the runner's log has more", task.Type()),
				}
			}
			answer <- outcome
		}()
		if got := task.Run(ctx, request); got != nil {
			outcome = got
		}
	}()
	return <-answer
}

// prepare finds everything that a call needs. failure is the end of the attempt without a call; err is the world's.
func (c *call) prepare(ctx context.Context) (request systemtasks.Call, task systemtasks.Task, failure *engine.Report, err error) {
	l := c.lease
	body, err := c.batch.input(ctx, l)
	if err != nil {
		return request, nil, nil, fmt.Errorf("reading the input: %w", err)
	}
	node, err := c.pool.nodes.find(ctx, l.NS, l.RevID, l.Slot)
	if err != nil {
		return request, nil, nil, fmt.Errorf("reading the workflow: %w", err)
	}
	task, ok := c.pool.opt.Catalog.Get(node.Type)
	if !ok {
		return request, nil, nil, fmt.Errorf("task type %q is not one of this runner", node.Type)
	}
	input := map[string]any{}
	if body != nil {
		if input, err = jsontext.DecodeObject(body, jsontext.Limits{}); err != nil {
			return request, nil, &engine.Report{
				Status: execution.FailedTerm, Cause: execution.CauseInputInvalid, Reason: "the stored input is not a JSON object: " + err.Error(),
			}, nil
		}
	}
	snapshot := c.pool.opt.Registry.Snapshot()
	namespace, _ := snapshot.NamespaceName(l.NS)
	request = systemtasks.Call{
		Namespace: namespace, ExecutionID: l.Exec.String(), TaskRef: node.Ref, Iteration: l.Iteration, Attempt: int(l.Attempt.Attempt),
		IdempotencyKey: execution.IdempotencyKey(namespace, l.Exec.String(), node.Ref, l.Iteration, l.Rerun), Input: input,
		Secrets: c.pool.secret,
	}
	if key := c.line.info.Key; key.TargetID != 0 {
		request.Target, _ = snapshot.TargetByID(key.TargetNS, key.TargetID) // in force; gone: the task says so
	}
	return request, task, nil, nil
}

func (p *Pool) secret(ctx context.Context, namespace string, ref schema.SecretRef) (string, error) {
	if p.opt.Secrets == nil {
		return "", fmt.Errorf("secret %q: this runner has no provider of secrets", ref.Name)
	}
	return p.opt.Secrets(ctx, namespace, ref)
}

func completed(o systemtasks.Completed) engine.Report {
	output, err := encode(o.Output)
	if err != nil {
		return engine.Report{Status: execution.FailedTerm, Cause: execution.CauseOutputTooLarge, Reason: "the output cannot be kept: " + err.Error()}
	}
	return engine.Report{Status: execution.Completed, Output: output}
}

func failed(o systemtasks.Failed) engine.Report {
	r := engine.Report{Status: execution.Failed, Cause: execution.Cause(o.Cause), Reason: o.Reason, MinWait: o.MinWait, Source: o.Source}
	if o.Terminal {
		r.Status = execution.FailedTerm
	}
	if o.Output != nil {
		output, err := encode(o.Output)
		if err != nil { // keep the failure, drop what it brought along
			output = nil
		}
		r.Output = output
	}
	return r
}

// encode writes an output within the limits of contract 7.1.
func encode(output map[string]any) ([]byte, error) {
	if output == nil {
		return nil, nil
	}
	if _, err := jsontext.Measure(output, execution.MaxPayload, execution.MaxDepth); err != nil {
		return nil, err
	}
	return jsontext.Encode(output)
}

// released handles a task that gave no verdict: the pool shuts down. Under atMostOnce what was sent may have happened (contract 3.7).
func (c *call) released(ctx context.Context, o systemtasks.Released) {
	if ctx.Err() == nil {
		c.report(ctx, engine.Report{
			Status: execution.Failed, Cause: execution.CauseWorkerFailed, Reason: "the task gave its work back although nobody asked for it",
		})
		return
	}
	def, ok := c.pool.opt.Registry.Snapshot().TaskRev(c.lease.NS, c.lease.DefRev)
	if o.Sent && ok && def.Def.Delivery == schema.AtMostOnce {
		c.record(ctx, engine.Lost{
			Cause: execution.CauseOutcomeUnknown, Reason: "the runner shut down during the call; delivery is atMostOnce", Certain: true,
		})
		return
	}
	c.release(ctx)
}

// release gives the lease back: no delivery, head of the lane.
func (c *call) release(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, err := range c.pool.opt.Queue.ReleaseKeys(end, store.Hot, []store.LeaseKey{c.lease.Key()}) {
		if err != nil { // the runner's lease ends it
			c.pool.failed(end, "release", err)
		}
	}
}

func (c *call) report(ctx context.Context, r engine.Report) { c.record(ctx, r) }

// record tells the engine until it is known to have been told: the fence makes repeating harmless. It gives up when the lease is lost or the engine has stopped.
func (c *call) record(ctx context.Context, what engine.What) {
	base := context.WithoutCancel(ctx)
	end := engine.End{
		ID: c.lease.ID, TaskNo: c.lease.TaskNo, Attempt: c.lease.Attempt.Attempt, Place: execution.InLease, Fence: c.lease.Fence, What: what,
	}
	for wait := 50 * time.Millisecond; !c.lost(); wait = min(2*wait, 2*time.Second) {
		result := c.pool.engine.Record(base, []engine.End{end})[0]
		if result.Err == nil {
			return
		}
		c.pool.opt.Log.Warn("an outcome could not be recorded yet", telemetry.KeyExecution, c.lease.Exec.String(), telemetry.KeyTask, c.lease.TaskNo,
			telemetry.KeyError, result.Err.Error())
		if result.Err == engine.ErrStopped { //nolint:errorlint // given as it is
			return
		}
		select {
		case <-c.gone:
			return
		case <-time.NewTimer(wait).C:
		}
	}
}

// nodes finds the node of a task in its pinned workflow.
type nodes struct {
	registry *registry.Registry
	mu       sync.RWMutex
	programs map[[2]int32]*decider.Program
}

func (n *nodes) init(r *registry.Registry) {
	n.registry, n.programs = r, map[[2]int32]*decider.Program{}
}

func (n *nodes) find(ctx context.Context, ns, rev, slot int32) (*schema.Task, error) {
	key := [2]int32{ns, rev}
	n.mu.RLock()
	program := n.programs[key]
	n.mu.RUnlock()
	if program == nil {
		w, err := n.registry.WorkflowRev(ctx, ns, rev)
		if err != nil {
			return nil, err
		}
		if program, err = decider.Compile(w.Workflow, ns, rev); err != nil {
			return nil, err
		}
		n.mu.Lock()
		n.programs[key] = program
		n.mu.Unlock()
	}
	return program.Task(slot), nil
}
