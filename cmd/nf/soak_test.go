//go:build soak

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/loader"
	"nf/policies/retry"
	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/store/storetest"
	"nf/runtime/store/storetest/history"
	"nf/schema"
	"nf/schema/spec"
)

// Dose of the soak (must show 2).
const (
	soakRunners    = 3
	soakKills      = 40
	soakEvery      = 3 * time.Second
	soakExecutions = 2000
	soakWorkers    = 8
)

// TestSoakRunnersKilled: three runners, one killed with -9 every 3 s, 40 kills, 2,000 executions of the demo's workflow. The invariants are
// proved from what was recorded.
func TestSoakRunnersKilled(t *testing.T) {
	s := newSoak(t)
	s.startRunners()
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range soakWorkers {
		all.Go(func() { s.work(fmt.Sprintf("w%d", i), stop) })
	}
	var starts sync.WaitGroup
	starts.Go(s.startAll)
	s.killThem()
	starts.Wait()
	s.awaitEnd()
	close(stop)
	all.Wait()

	require.NoError(t, s.history.Read(t.Context(), s.url))
	s.report()
	found := history.Check(s.history)
	for i, v := range found {
		if i == 50 {
			t.Errorf("… and %d more", len(found)-50)
			break
		}
		t.Error(v)
	}
	storetest.CheckInvariants(t, s.url)
}

// soak is one run: a database that records, processes, and what they were told.
type soak struct {
	t       *testing.T
	url     string // of the database
	nf      string
	project string
	key     string
	rnd     *rand.Rand
	runners [soakRunners]*runnerProcess

	mu      sync.Mutex
	history *history.History
	kills   int
}

type runnerProcess struct {
	address string
	cmd     *exec.Cmd
	log     *os.File
	ended   chan struct{}
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{t: t, url: storetest.URL(t), rnd: rand.New(rand.NewPCG(seed, 1)), history: &history.History{Late: 6 * time.Second, Batch: 200, Deciders: 3 * soakRunners}}
	dir := t.TempDir()
	s.nf = filepath.Join(dir, "nf")
	s.command(exec.Command("go", "build", "-race", "-o", s.nf, "."))
	services := filepath.Join(dir, "services")
	s.command(exec.Command("go", "build", "-o", services, "../../examples/orders/services"))
	web, rpc := freePort(t), freePort(t)
	s.copyProject(filepath.Join(dir, "orders"), web, rpc)

	shop := exec.Command(services, "-http", web, "-grpc", rpc)
	require.NoError(t, shop.Start())
	t.Cleanup(func() { _ = shop.Process.Kill(); _ = shop.Wait() })

	require.NoError(t, history.Watch(t.Context(), s.url))
	s.command(s.cli("apply", "--yes"))
	st := storetest.Open(t, s.url)
	key, err := auth.New(st, clock.System{}).Create(t.Context(), auth.Operator("soak"), "soak", []auth.Scope{auth.Admin}, nil, func(string) bool { return false })
	require.NoError(t, err)
	s.key = key
	s.history.Tasks = promises(t, s.project)
	s.history.Actions = s.audited()
	return s
}

func (s *soak) command(cmd *exec.Cmd) {
	s.t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", cmd, out)
}

func (s *soak) cli(args ...string) *exec.Cmd {
	cmd := exec.Command(s.nf, append(args, "-C", s.project, "--env", storetest.Environment)...)
	cmd.Env = append(os.Environ(), "NF_DATABASE_URL="+s.url, "CI=1")
	return cmd
}

// copyProject copies the example and lets its Targets point at this run's services.
func (s *soak) copyProject(to, web, rpc string) {
	s.t.Helper()
	s.project = to
	from := filepath.Join("..", "..", "examples", "orders")
	require.NoError(s.t, os.CopyFS(to, os.DirFS(from)))
	path := filepath.Join(to, "targets.yaml")
	text, err := os.ReadFile(path)
	require.NoError(s.t, err)
	text = []byte(strings.NewReplacer("127.0.0.1:7431", web, "127.0.0.1:7432", rpc).Replace(string(text)))
	require.NoError(s.t, os.WriteFile(path, text, 0o600))
}

// audited counts the audit rows that stand before the runners: they write none of their own.
func (s *soak) audited() int64 {
	var h history.History
	require.NoError(s.t, h.Read(s.t.Context(), s.url))
	return h.Audited
}

// promises reads from the definitions what each task number promises.
func promises(t *testing.T, project string) map[int32]history.Task {
	t.Helper()
	validator, err := spec.Compile()
	require.NoError(t, err)
	read, err := loader.ReadDir(project)
	require.NoError(t, err)
	bundle, findings := loader.Load(t.Context(), read, validator)
	require.False(t, findings.HasErrors(), findings)
	object, ok := bundle.Set.Get(schema.Address{Kind: schema.KindWorkflow, Namespace: "shop", Name: "fulfil-order"})
	require.True(t, ok)
	workflow := object.(*schema.Workflow)
	out, numbers := map[int32]history.Task{}, map[string]int32{}
	number := int32(0)
	var lastFork *schema.Task
	workflow.Walk(func(task *schema.Task, _ int) bool {
		number++
		numbers[task.Ref] = number
		p := history.Task{Ref: task.Ref, Budget: 1}
		if task.Type.Class() == schema.ClassRunner {
			p.Policy, p.RetryCount = retry.Of(schema.DefaultRetry()), schema.DefaultRetry().RetryCount
		}
		if task.Definition != "" {
			object, ok := bundle.Set.Get(schema.Address{Kind: schema.KindTaskDefinition, Namespace: "shop", Name: task.Definition})
			require.True(t, ok)
			def := object.(*schema.TaskDefinition)
			p.Policy, p.RetryCount = retry.Of(def.Retry), def.Retry.RetryCount
			p.AtMostOnce, p.Cap, p.Budget = def.Delivery == schema.AtMostOnce, def.ConcurrentExecLimit, def.RetryBudget
			p.Timeout, p.StartBy = def.Timeout, def.ScheduleToStartTimeout
		}
		if task.RetryCount != nil {
			p.RetryCount = *task.RetryCount
		}
		if task.Type == schema.TypeForkJoin {
			lastFork = task
		}
		if task.Type == schema.TypeJoin && lastFork != nil {
			for _, branch := range lastFork.ForkTasks {
				p.JoinOf = append(p.JoinOf, numbers[branch[len(branch)-1].Ref])
			}
		}
		out[number] = p
		return true
	})
	return out
}

func freePort(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (s *soak) startRunners() {
	for i := range s.runners {
		s.runners[i] = &runnerProcess{address: freePort(s.t)}
		log, err := os.Create(filepath.Join(s.t.TempDir(), fmt.Sprintf("runner%d.log", i)))
		require.NoError(s.t, err)
		s.runners[i].log = log
		s.launch(s.runners[i])
	}
	s.t.Cleanup(func() {
		for _, r := range s.runners {
			_ = r.cmd.Process.Kill()
			<-r.ended
			if s.t.Failed() {
				tail(s.t, r.log.Name())
			}
		}
	})
}

func tail(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err == nil {
		t.Logf("%s:\n%s", path, text[max(0, len(text)-8000):])
	}
}

func (s *soak) launch(r *runnerProcess) {
	r.cmd = s.cli("run", "--listen", r.address)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	require.NoError(s.t, r.cmd.Start())
	r.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(r.cmd, r.ended)
}

// killThem kills one runner every 3 s with -9 and starts it again at once.
func (s *soak) killThem() {
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for range soakKills {
		<-tick.C
		r := s.runners[s.rnd.IntN(len(s.runners))]
		select {
		case <-r.ended:
			s.t.Errorf("runner %s ended by itself", r.address)
		default:
		}
		_ = r.cmd.Process.Kill()
		<-r.ended
		s.kills++
		s.launch(r)
	}
}

// startAll starts the executions over the time of the kills. A start that was not answered is repeated with its key.
func (s *soak) startAll() {
	pause := time.NewTicker(soakKills * soakEvery / soakExecutions)
	defer pause.Stop()
	var all sync.WaitGroup
	for i := range soakExecutions {
		<-pause.C
		all.Go(func() { s.startOne(i) })
	}
	all.Wait()
}

func (s *soak) startOne(i int) {
	shipping := "standard"
	if i%2 == 0 {
		shipping = "express"
	}
	key := fmt.Sprintf("order-%d", i)
	body := map[string]any{"idempotencyKey": key, "input": map[string]any{"orderId": key, "sku": "A-1", "quantity": 1 + i%5, "shipping": shipping}}
	for try := 0; ; try++ {
		status, answer, err := s.call(s.runners[(i+try)%soakRunners].address, "/v1/ns/shop/executions/fulfil-order", body)
		if err == nil && status < 300 {
			id, _ := answer["executionId"].(string)
			s.told(func(h *history.History) { h.Starts = append(h.Starts, history.Start{Key: key, ExecutionID: id}) })
			return
		}
		if err == nil && status < 500 {
			s.t.Errorf("start %s was refused: %d %v", key, status, answer)
			s.told(func(h *history.History) { h.Starts = append(h.Starts, history.Start{Key: key, Refused: true}) })
			return
		}
		time.Sleep(100 * time.Millisecond) // the runner is dead or starting
	}
}

func (s *soak) told(what func(*history.History)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what(s.history)
}

// work is an external worker: most tasks complete, some fail, some are never answered, and every fifth verdict is sent twice.
func (s *soak) work(id string, stop <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(uint64(len(id)), uint64(id[len(id)-1])))
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		address := s.runners[(n+int(id[len(id)-1]))%soakRunners].address
		_, answer, err := s.call(address, "/v1/ns/shop/queues/pack/lease", map[string]any{"workerId": id, "waitSeconds": 2, "leaseSeconds": 3})
		if err != nil {
			time.Sleep(50 * time.Millisecond) // dead or starting
			continue
		}
		tasks, _ := answer["tasks"].([]any)
		for _, task := range tasks {
			s.finish(rnd, address, task.(map[string]any))
		}
	}
}

func (s *soak) finish(rnd *rand.Rand, address string, task map[string]any) {
	taskID, token := task["taskId"].(string), task["leaseToken"].(string)
	status := "COMPLETED"
	switch dice := rnd.IntN(100); {
	case dice < 2:
		return // never answered: the lease runs out
	case dice < 6:
		status = "FAILED"
	}
	time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond) // the work
	body := map[string]any{"leaseToken": token, "status": status, "output": map[string]any{"parcel": "p"}, "reason": "by the dice"}
	repeats := 1
	if rnd.IntN(5) == 0 {
		repeats = 2
	}
	for try := 0; repeats > 0 && try < 100; try++ {
		code, answer, err := s.call(address, "/v1/ns/shop/tasks/"+taskID+"/report", body)
		if err != nil || code >= 500 {
			address = s.runners[rnd.IntN(soakRunners)].address
			time.Sleep(50 * time.Millisecond) // dead or starting: the same report again, elsewhere
			continue
		}
		repeats--
		var fence int64
		_, _ = fmt.Sscan(strings.SplitN(token, ".", 2)[0], &fence)
		accepted := code == http.StatusOK && answer["replayed"] == false
		s.told(func(h *history.History) {
			h.Verdicts = append(h.Verdicts, history.Verdict{TaskID: taskID, Fence: fence, Status: status, Accepted: accepted})
		})
	}
}

func (s *soak) call(address, path string, body any) (int, map[string]any, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("X-Api-Key", s.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	answer := map[string]any{}
	return response.StatusCode, answer, json.Unmarshal(raw, &answer)
}

// awaitEnd waits until no execution is open. The workflow's own time-out is 300 s.
func (s *soak) awaitEnd() {
	deadline := time.Now().Add(6 * time.Minute)
	for {
		open, err := history.Open(s.t.Context(), s.url)
		if err == nil && open == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%d executions have not ended", open)
			return
		}
		time.Sleep(time.Second)
	}
}

// report says what the run came to.
func (s *soak) report() {
	ends, deliveries, redelivered := map[int16]int{}, len(s.history.Grants), 0
	for _, x := range s.history.Executions {
		ends[x.Status]++
	}
	for _, g := range s.history.Grants {
		if g.Deliveries > 1 {
			redelivered++
		}
	}
	s.t.Logf("%d kills, %d starts, %d executions by status %v, %d attempts, %d leases of which %d redeliveries, %d verdicts told",
		s.kills, len(s.history.Starts), len(s.history.Executions), ends, len(s.history.Rows), deliveries, redelivered, len(s.history.Verdicts))
	require.Len(s.t, s.history.Executions, soakExecutions)
	require.Greater(s.t, ends[10], soakExecutions*8/10, "most executions complete")
	s.failedForAReason()
}

// failedForAReason holds that an execution failed only because a call that may be made once lost its runner, or because a task used up its retries.
func (s *soak) failedForAReason() {
	reasons := map[string]string{}
	for _, r := range s.history.Rows {
		task := s.history.Tasks[r.TaskNo]
		switch {
		case r.Absorbed || r.Status != 20 && r.Status != 21 && r.Status != 22:
		case task.AtMostOnce && r.Cause == "OUTCOME_UNKNOWN":
			reasons[r.Execution] = "outcome unknown of " + task.Ref
		case int64(r.Attempt) > int64(task.RetryCount):
			reasons[r.Execution] = "retries used up of " + task.Ref
		}
	}
	told := map[string]int{}
	for _, x := range s.history.Executions {
		if x.Status == 20 {
			told[reasons[x.ID]]++
		}
	}
	s.t.Logf("failed executions by reason: %v", told)
	require.NotContains(s.t, told, "", "an execution failed without a reason")
}
