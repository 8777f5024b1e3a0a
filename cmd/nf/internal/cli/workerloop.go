package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"nf/cmd/nf/internal/view"
	"nf/runtime/api"
)

// worker leases tasks and runs a command for each (contract 5.1).
type worker struct {
	c           *client // of endless patience
	ns          string
	queues      []string
	all         bool // queues are looked up again from time to time
	command     []string
	environ     []string // of the command
	concurrency int
	lease       time.Duration
	id          string
	once        bool
	verbose     bool
	killAfter   time.Duration
	drainFor    time.Duration
	pollWait    time.Duration
	beatEvery   time.Duration
	say         func(string, ...any)

	running  sync.WaitGroup
	children sync.Map // of the commands that run: *child → nothing
	turn     int      // which queue is asked first
	served   bool     // a lease call was answered: what it asks for exists
	looked   time.Time
}

// leased is a task that this worker holds.
type leased struct {
	api.LeasedTask
	text []byte // the task as it came, without its token: the command's input
	at   time.Time
}

// leaseAnswer is the answer to a lease call.
type leaseAnswer struct {
	Tasks     []json.RawMessage `json:"tasks"`
	Throttled json.RawMessage   `json:"throttled"`
}

// run leases and works until ctx ends, or with once until the queues are empty. Then running commands get their time, and what has not
// started is released.
func (w *worker) run(ctx context.Context) error {
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	slots := make(chan struct{}, w.concurrency)
	err := w.loop(ctx, alive, slots)
	if ctx.Err() != nil {
		err = nil // it was told to stop
	}
	return errors.Join(err, w.drain(ctx, kill))
}

// drain waits for running commands; when the worker was told to stop they get their time and are killed then.
func (w *worker) drain(ctx context.Context, kill context.CancelFunc) error {
	done := make(chan struct{})
	go func() { w.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	w.say("stopping: running commands get %s", w.drainFor)
	t := time.NewTimer(w.drainFor)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
	}
	kill()
	<-done
	return fail("commands were still running after %s and were killed; their tasks are given to others when their leases end", w.drainFor)
}

// killAll kills the commands and what they started: a second signal ends the worker at once, and they have no other end.
func (w *worker) killAll() {
	w.children.Range(func(c, _ any) bool {
		if c, ok := c.(*child); ok {
			c.signal(syscall.SIGKILL)
		}
		return true
	})
}

func (w *worker) loop(ctx, alive context.Context, slots chan struct{}) error {
	for {
		free := takeSlots(ctx, slots)
		if free == 0 {
			return nil
		}
		asked := time.Now()
		tasks, throttled, err := w.leaseSome(ctx, free)
		for i := range tasks {
			if i >= free || ctx.Err() != nil {
				w.release(&tasks[i])
				continue
			}
			w.running.Go(func() {
				defer func() { <-slots }()
				w.perform(ctx, alive, &tasks[i])
			})
		}
		for range free - min(free, len(tasks)) {
			<-slots
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if err = w.mayGoOn(ctx, err); err != nil {
				return err
			}
			continue
		}
		w.served = true
		if len(tasks) > 0 {
			continue
		}
		if w.once && throttled == 0 {
			if !w.anyRunning(slots) {
				return nil
			}
			w.running.Wait() // what runs may bring new tasks
			continue
		}
		w.idle(ctx, asked, throttled)
	}
}

// takeSlots waits for a free slot and takes all that are free, at most what one lease call gives. 0: ctx ended.
func takeSlots(ctx context.Context, slots chan struct{}) int {
	select {
	case <-ctx.Done():
		return 0
	case slots <- struct{}{}:
	}
	n := 1
	for n < maxLeaseTasks {
		select {
		case slots <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

func (w *worker) anyRunning(slots chan struct{}) bool { return len(slots) > 0 }

// idle keeps an empty answer that came at once from becoming a storm of calls.
func (w *worker) idle(ctx context.Context, asked time.Time, throttled time.Duration) {
	wait := throttled
	if !w.once {
		wait = 0 // the call itself has waited
	}
	if least := 200 * time.Millisecond; time.Since(asked) < least {
		wait = max(wait, least)
	}
	if wait > 0 {
		pause(ctx, wait)
	}
}

// mayGoOn judges a refusal: a worker that has worked before outlives a runner that does not know its queue yet.
func (w *worker) mayGoOn(ctx context.Context, err error) error {
	refusal := refusalOf(err)
	switch {
	case refusal != nil && refusal.status == http.StatusTooManyRequests,
		refusal != nil && w.served && (refusal.status == http.StatusNotFound || refusal.status >= http.StatusInternalServerError):
		w.say("%s; trying again", view.Safe(refusal.Error()))
		pause(ctx, max(refusal.retryAfter, 5*time.Second))
		return nil
	}
	return err
}

// leaseSome leases at most so many tasks. throttled is above 0 if a gate left something unleased.
func (w *worker) leaseSome(ctx context.Context, free int) (tasks []leased, throttled time.Duration, err error) {
	if err := w.lookAgain(ctx); err != nil {
		return nil, 0, err
	}
	if len(w.queues) == 1 {
		return w.leaseOne(ctx, w.queues[0], free, w.wait())
	}
	w.turn++
	for i := range w.queues {
		if len(tasks) == free {
			return tasks, throttled, nil
		}
		got, held, err := w.leaseOne(ctx, w.queues[(w.turn+i)%len(w.queues)], free-len(tasks), 0)
		tasks, throttled = append(tasks, got...), max(throttled, held)
		if err != nil && !w.dropped(err) {
			return tasks, throttled, err
		}
		if err != nil {
			return tasks, time.Millisecond, nil // the list of queues has changed
		}
	}
	if len(tasks) > 0 || w.once || len(w.queues) == 0 {
		if len(w.queues) == 0 {
			pause(ctx, w.pollWait)
		}
		return tasks, throttled, nil
	}
	return w.leaseAny(ctx)
}

func (w *worker) wait() time.Duration {
	if w.once {
		return 0
	}
	return w.pollWait
}

// lookAgainEvery is how often --all-queues looks for new queues.
const lookAgainEvery = 30 * time.Second

func (w *worker) lookAgain(ctx context.Context) error {
	if !w.all || !w.looked.IsZero() && time.Since(w.looked) < lookAgainEvery {
		return nil
	}
	names, err := w.knownQueues(ctx)
	if err != nil {
		return err
	}
	w.queues, w.looked = names, time.Now()
	return nil
}

// dropped takes a queue that the key may not lease out of those of --all-queues.
func (w *worker) dropped(err error) bool {
	refusal := refusalOf(err)
	if !w.all || refusal == nil || refusal.status != http.StatusForbidden {
		return false
	}
	name, _ := strings.CutPrefix(fmt.Sprint(refusal.body.Details["scope"]), "queues:lease:")
	for i, q := range w.queues {
		if q == name {
			w.queues = append(w.queues[:i:i], w.queues[i+1:]...)
			return true
		}
	}
	return false
}

type leaseRequest struct {
	Queues       []queueAsk `json:"queues,omitempty"`
	WorkerID     string     `json:"workerId"`
	Count        int        `json:"count,omitempty"`
	WaitSeconds  int        `json:"waitSeconds"`
	LeaseSeconds float64    `json:"leaseSeconds"`
	RequestID    string     `json:"requestId"`
}

type queueAsk struct {
	Queue string `json:"queue"`
	Count int    `json:"count"`
}

func (w *worker) leaseOne(ctx context.Context, queue string, count int, wait time.Duration) ([]leased, time.Duration, error) {
	return w.leaseCall(ctx, nsPath(w.ns, "queues", queue, "lease"), leaseRequest{Count: count}, wait)
}

// mostQueues is how many queues one call waits for.
const mostQueues = 20

// leaseAny waits for one task of any queue.
func (w *worker) leaseAny(ctx context.Context) ([]leased, time.Duration, error) {
	var r leaseRequest
	wait := w.pollWait
	if len(w.queues) > mostQueues {
		wait = time.Second // the others are looked at in between
	}
	for i := range min(len(w.queues), mostQueues) {
		r.Queues = append(r.Queues, queueAsk{w.queues[(w.turn+i)%len(w.queues)], 1})
	}
	return w.leaseCall(ctx, nsPath(w.ns, "lease"), r, wait)
}

// leaseCall leases. The request id makes it safe to repeat when its answer is lost: the same leases come again.
func (w *worker) leaseCall(ctx context.Context, path string, r leaseRequest, wait time.Duration) ([]leased, time.Duration, error) {
	r.WorkerID, r.RequestID = w.id, rand.Text()
	r.WaitSeconds, r.LeaseSeconds = int(wait/time.Second), float64(w.lease.Milliseconds())/1000
	var answer leaseAnswer
	if err := w.c.do(ctx, ask{method: http.MethodPost, path: path, body: r, safe: true, wait: wait}, &answer); err != nil {
		return nil, 0, err
	}
	tasks := make([]leased, 0, len(answer.Tasks))
	for _, raw := range answer.Tasks {
		t, err := readLeased(raw)
		if err != nil {
			return tasks, 0, err
		}
		tasks = append(tasks, t)
	}
	return tasks, throttledFor(answer.Throttled), nil
}

// readLeased splits a task into what the worker needs and what its command is told: all but the token.
func readLeased(raw json.RawMessage) (leased, error) {
	t := leased{at: time.Now()}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &t.LeasedTask); err != nil {
		return t, fmt.Errorf("leased task: %w", err)
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return t, fmt.Errorf("leased task: %w", err)
	}
	delete(fields, "leaseToken")
	var err error
	t.text, err = encodeBody(fields)
	t.Input = nil // it stands in text, as exact as it came
	return t, err
}

// throttledFor gives how long a gate stays closed, at least a second; 0 = none did.
func throttledFor(raw json.RawMessage) time.Duration {
	var list []api.Throttled
	var one api.Throttled
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return 0
	case json.Unmarshal(raw, &list) == nil && len(list) > 0:
		one = list[0]
	case json.Unmarshal(raw, &one) != nil:
		return 0
	}
	return max(time.Second, min(time.Duration(one.RetryAfterSeconds)*time.Second, maxBackOff))
}

// release gives back a task whose command has not started: it counts as never delivered.
func (w *worker) release(t *leased) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	body := map[string]string{"leaseToken": t.LeaseToken}
	if err := w.c.do(ctx, ask{method: http.MethodPost, path: nsPath(w.ns, "tasks", t.TaskID, "release"), body: body, safe: true}, nil); err != nil {
		w.say("task %s: not released (%s); others get it when its lease ends", t.TaskID, view.Safe(err.Error()))
	}
}
