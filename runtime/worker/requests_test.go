//go:build unix

package worker_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/queue"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/httptask"
	"nf/systemtasks/outbound"
)

// realHTTP is the HTTP task as it is.
func realHTTP(t *testing.T) systemtasks.Task {
	t.Helper()
	client, err := outbound.New(outbound.Options{Now: time.Now, AllowLoopback: true})
	require.NoError(t, err)
	task, err := httptask.New(httptask.Options{Client: client})
	require.NoError(t, err)
	return task
}

// requests is what a stub was asked.
type requests struct {
	mu   sync.Mutex
	keys []string
	at   []time.Time
}

func (r *requests) note(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.Copy(io.Discard, req.Body)
	r.keys, r.at = append(r.keys, req.Header.Get("Idempotency-Key")), append(r.at, time.Now())
}

func (r *requests) seen() ([]string, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys, r.at
}

// BG-02, FC-064, FC-065: a call that fails is sent once an attempt and no more, after the delay of the policy, with the same idempotency key; whatever the
// failure: a status that asks for a retry, a gateway's 504, an answer that never comes whole, nobody there.
func TestBG_02_FC_064_FC_065_OneRequestAnAttemptAfterItsDelay(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"503":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"504":                func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
		"429 without a hint": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"429 with a negative hint": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "-5")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hangs up halfway": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "abc")
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const delay = 700 * time.Millisecond
			var seen requests
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.note(r)
				answer(w, r)
			}))
			defer server.Close()
			def := enginetest.Definition("d", func(d *schema.TaskDefinition) {
				d.RetryBudget, d.Retry.RetryCount, d.Retry.Logic, d.Retry.Delay = 1, 2, schema.RetryFixed, schema.Millis(delay.Milliseconds())
			})
			s := workertest.New(t, workertest.Options{Tasks: []systemtasks.Task{realHTTP(t)}}, def,
				enginetest.Workflow("w", call("a", "d", map[string]schema.Value{"uri": server.URL, "method": "POST", "body": "x"})))
			x := s.Await(s.Start("w", ""))
			require.Equal(t, "FAILED", x.Status)
			attempts := enginetest.Attempts(x, "a")
			require.Len(t, attempts, 3)
			keys, at := seen.seen()
			require.Len(t, keys, 3, "exactly one request an attempt")
			for i := 1; i < 3; i++ {
				require.Equal(t, keys[0], keys[i])
				require.NotEmpty(t, keys[i])
				require.GreaterOrEqual(t, at[i].Sub(at[i-1]), delay, "not before its delay")
				require.False(t, attempts[i].LeasedAt.Before(attempts[i-1].EndedAt.Add(delay)))
			}
			if name != "hangs up" && name != "hangs up halfway" {
				require.Equal(t, execution.CauseHTTPStatus, attempts[0].Cause)
			}
		})
	}
}

// BG-103, BG-100: a join follows its last branch at once, whoever executes the branches.
func TestBG_103_JoinFollowsItsLastBranchAtOnce(t *testing.T) {
	t.Parallel()
	tasks := append(enginetest.Fork("f", []*schema.Task{call("a", "", nil)}, []*schema.Task{call("b", "", nil)}, []*schema.Task{call("c", "", nil), call("d", "", nil)}),
		call("last", "", nil))
	opt := workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(workertest.Done)}}
	s := workertest.New(t, opt, enginetest.Workflow("w", tasks...))
	s.Beside(opt)
	for range 20 {
		x := s.Await(s.Start("w", ""))
		require.Equal(t, "COMPLETED", x.Status)
		join, last := enginetest.Task(t, x, "f_join"), enginetest.Task(t, x, "last")
		newest := time.Time{}
		for _, ref := range []string{"a", "b", "d"} {
			if at := enginetest.Task(t, x, ref).EndedAt; at.After(newest) {
				newest = at
			}
		}
		require.Less(t, join.EndedAt.Sub(newest), 2*time.Second)
		require.Less(t, last.ScheduledAt.Sub(newest), 2*time.Second)
	}
}

// handover runs ten calls of 100 ms under a cap of one in two processes, and gives how long all took and the longest time between the end of one and
// the lease of the next.
func handover(t *testing.T) (all, longest time.Duration) {
	t.Helper()
	opt := workertest.Options{Tasks: []systemtasks.Task{workertest.HTTP(func(ctx context.Context, c systemtasks.Call) systemtasks.Outcome {
		hold(100 * time.Millisecond)
		return workertest.Done(ctx, c)
	})}}
	s := workertest.New(t, opt, enginetest.Definition("slow", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit = 1 }), enginetest.Workflow("w", call("a", "slow", nil)))
	other := s.Beside(opt)
	require.Eventually(t, func() bool { return s.Notifier.Proven() && other.Notifier.Proven() }, 30*time.Second, time.Millisecond)
	var ids []execution.ID
	for range 10 {
		ids = append(ids, s.Start("w", ""))
	}
	var leased, ended []time.Time
	for _, id := range ids {
		task := enginetest.Task(t, s.Await(id), "a")
		leased, ended = append(leased, task.LeasedAt), append(ended, task.EndedAt)
	}
	first, last := leased[0], ended[0]
	for i := range ids {
		if leased[i].Before(first) {
			first = leased[i]
		}
		if ended[i].After(last) {
			last = ended[i]
		}
		next := time.Duration(1 << 62)
		for j := range ids {
			if d := leased[j].Sub(ended[i]); d >= 0 {
				next = min(next, d)
			}
		}
		if next < 1<<62 {
			longest = max(longest, next)
		}
	}
	return last.Sub(first), longest
}

// BG-35 with whole processes: a place that one process frees is taken at once, by either. The soak holds the 2 s of the row on an idle machine.
func TestBG_35_PlaceIsHandedOverBetweenProcesses(t *testing.T) {
	t.Parallel()
	all, longest := handover(t)
	t.Logf("ten calls of 100 ms took %v, the longest handover %v", all, longest)
	require.Less(t, longest, 2*time.Second, "far below the poll's interval")
}

// FC-088: an answer never holds more than was asked for, however the tasks come into it: claimed, or leased by the engine for a waiting poll.
func TestFC_088_AnswerHoldsNoMoreThanAsked(t *testing.T) {
	t.Parallel()
	objects := []schema.Object{}
	for _, name := range []string{"x", "y"} {
		objects = append(objects, enginetest.Definition(name), enginetest.Workflow(name, enginetest.Simple("a", name, nil)))
	}
	s := workertest.New(t, workertest.Options{}, objects...)
	total := 0
	for round := range 10 {
		answer := make(chan queue.Answer, 1)
		go func() {
			a, err := s.Queue.Lease(t.Context(), queue.Request{
				NS: s.NS, Namespace: enginetest.Namespace, Worker: "w", Wait: 20 * time.Second,
				Queues: []queue.Ask{{Queue: "x", Count: 2}, {Queue: "y", Count: 1}},
			})
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		if round%2 == 0 {
			require.Eventually(t, func() bool { return s.Queue.Waiting() == 1 }, 30*time.Second, time.Millisecond)
		}
		var batch []engine.StartRequest // of one transaction
		for i := range 6 {
			batch = append(batch, engine.StartRequest{Namespace: enginetest.Namespace, Workflow: []string{"x", "y"}[i%2]})
		}
		for _, r := range s.Engine.Start(t.Context(), batch) {
			require.NoError(t, r.Err)
		}
		a := <-answer
		got := map[string]int{}
		for _, task := range a.Tasks {
			got[task.Queue]++
			s.Report(task.Leased, enginetest.Completed(""))
		}
		require.NotEmpty(t, a.Tasks)
		require.LessOrEqual(t, got["x"], 2)
		require.LessOrEqual(t, got["y"], 1)
		total += len(a.Tasks)
		for _, name := range []string{"x", "y"} {
			for _, task := range s.Lease(name, 100, 0).Tasks {
				s.Report(task.Leased, enginetest.Completed(""))
				total++
			}
		}
	}
	require.Equal(t, 60, total)
}

// BG-35: a poll that waits in one process for a place that is held through another is answered when the place is free, however it was freed. Nobody
// else asks, and the processes' own looks are seconds apart.
func TestBG_35_FreedPlaceWakesAPollOfAnotherProcess(t *testing.T) {
	t.Parallel()
	opt := workertest.Options{NoPool: true}
	erp := []schema.Ref{{Namespace: enginetest.Namespace, Name: "erp"}}
	timed := enginetest.Workflow("w", enginetest.Simple("a", "charge", nil))
	here := workertest.New(t, opt, timed,
		enginetest.Definition("charge", func(d *schema.TaskDefinition) { d.Semaphores, d.RetryBudget, d.Retry.Delay = erp, 1, 3_600_000 }),
		enginetest.Definition("short", func(d *schema.TaskDefinition) {
			d.Semaphores, d.ResponseTimeout, d.Retry.RetryCount, d.Delivery = erp, 1000, 0, schema.AtMostOnce
		}),
		enginetest.Workflow("short", enginetest.Simple("a", "short", nil)),
		&schema.Semaphore{Metadata: schema.Metadata{Name: "erp", Namespace: enginetest.Namespace}, Permits: 1})
	there := here.Beside(opt)
	require.Eventually(t, func() bool { return here.Notifier.Proven() && there.Notifier.Proven() }, 30*time.Second, time.Millisecond)
	for _, way := range []struct {
		name, definition string
		free             func(queue.Task)
	}{
		{"complete", "charge", func(l queue.Task) { here.Report(l.Leased, enginetest.Completed("")) }},
		{"fail", "charge", func(l queue.Task) { here.Report(l.Leased, enginetest.Failed("no")) }},
		{"terminate", "charge", func(l queue.Task) {
			_, err := here.Engine.Terminate(t.Context(), l.ID, "x", "ann")
			require.NoError(t, err)
		}},
		{"lost", "short", func(queue.Task) {}}, // its lease of a second runs out
	} {
		workflow := map[string]string{"charge": "w", "short": "short"}[way.definition]
		here.Start(workflow, "")
		first := here.Lease(way.definition, 1, 0).Tasks
		require.Len(t, first, 1, way.name)
		next := here.Start("w", "")
		answer := make(chan queue.Answer, 1)
		go func() {
			a, err := there.Queue.Lease(t.Context(), queue.Request{
				NS: here.NS, Namespace: enginetest.Namespace, Worker: "w", Wait: 30 * time.Second, Queues: []queue.Ask{{Queue: "charge", Count: 1}},
			})
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		require.Eventually(t, func() bool { return there.Queue.Waiting() == 1 }, 30*time.Second, time.Millisecond)
		freed := time.Now()
		way.free(first[0])
		a := <-answer
		require.Len(t, a.Tasks, 1, way.name)
		require.Equal(t, next.Exec, a.Tasks[0].Exec, way.name)
		t.Logf("%s: %v", way.name, time.Since(freed))
		require.Less(t, time.Since(freed), 5*time.Second, "%s: not by the next look", way.name)
		there.Report(a.Tasks[0].Leased, enginetest.Completed(""))
	}
}
