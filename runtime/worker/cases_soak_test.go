//go:build soak && unix

package worker_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine/enginetest"
	"nf/runtime/store"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

// All pairs of paths for ten minutes.
func TestSoakFC_149_AllPairsOfPaths(t *testing.T) { pairs(t, 10*time.Minute/66) }

// 1,000 runs of 20 tasks, ten kills.
func TestSoakBG_127_NextTaskAtOnceThoughProcessesDie(t *testing.T) {
	schedule, _ := killed(t, 1000, 10, 40)
	require.Less(t, schedule, 5*time.Second)
}

// 200 starts a second for five minutes. The race detector costs several times what the work does, so the backlog gets a minute.
func TestSoakBG_131_BacklogReturnsToZero(t *testing.T) {
	require.Less(t, burst(t, 200, 5*time.Minute), time.Minute)
}

// Ten tasks of 100 ms under a limit of one within 2 s, on a machine that does nothing else.
func TestSoakBG_35_FreedPlaceIsHandedOverAtOnce(t *testing.T) {
	all, _ := handover(t)
	require.Less(t, all, 2*time.Second)
}

// A call that lasts three times the runner's lease in real time is made once.
func TestSoakBG_76_LongCallIsMadeOnce(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		hits.Add(1)
		hold(3 * store.RunnerLease)
	}))
	defer server.Close()
	opt := workertest.Options{Tasks: []systemtasks.Task{realHTTP(t)}}
	s := workertest.New(t, opt, enginetest.Workflow("w", call("a", "", map[string]schema.Value{"uri": server.URL, "timeoutMs": 600_000})))
	s.Beside(opt)
	id := s.Start("w", "")
	require.Eventually(t, func() bool { return !s.Get(id).Open() }, 5*store.RunnerLease, time.Second)
	require.Equal(t, "COMPLETED", s.Get(id).Status)
	require.Equal(t, int64(1), hits.Load())
}
