//go:build unix

package sweep_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/store"
	"nf/runtime/worker/workertest"
	"nf/schema"
	"nf/systemtasks"
)

// staleFinisher lets a worker lose its lease, another one get the task under a cap of one, and the first one finish then. It gives whether the late
// verdict was accepted, and how many leases there are of the cap while the second worker still runs.
func staleFinisher(t *testing.T, rewrite func(statement, text string) string) (accepted bool, running int) {
	t.Helper()
	c := &workertest.Clock{}
	opt := still(c)
	opt.Broken = rewrite != nil
	opt.Store = func(s *store.Store) { s.Rewrite = rewrite }
	s := workertest.New(t, opt, one("charge", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit, d.ResponseTimeout = 1, 1000 })...)
	s.Start("w", "")
	s.Start("w", "")
	old := s.Lease("charge", 1, 0).Tasks[0]
	c.Advance(time.Second)
	pass(t, s)
	newer := s.Lease("charge", 1, 0).Tasks[0]
	require.Equal(t, old.Exec, newer.Exec)
	accepted = s.Record(enginetest.EndOf(old.Leased, enginetest.Completed(""))).Answer == engine.Accepted
	return accepted, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`)
}

func TestFC_089_FC_119_StaleFinisherFreesNothing(t *testing.T) {
	t.Parallel()
	accepted, running := staleFinisher(t, nil)
	require.False(t, accepted, "a verdict is accepted from the latest fence only")
	require.Equal(t, 1, running, "the new holder still has its place")
}

// The same check must catch a completion without the fence.
func TestFenceMutantIsCaught(t *testing.T) {
	t.Parallel()
	accepted, running := staleFinisher(t, func(statement, text string) string {
		switch statement {
		case "engine_lock_leases", "engine_wait_leases":
			return strings.Replace(strings.Replace(text, " AND x.fence = k.fence", "", 1), "x.fence,", "k.fence,", 1)
		case "engine_drop_leases":
			return strings.Replace(text, " AND l.fence = k.fence", "", 1)
		}
		return text
	})
	require.True(t, accepted, "the mutant lives")
	require.Equal(t, 0, running, "and takes the place of the new holder")
}

// What the runner executes is no more than its places, whatever waits.
func TestFC_088_RunnerLeasesNoMoreThanItsPlaces(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 100), make(chan struct{})
	s := workertest.New(t, workertest.Options{Executors: 2, Tasks: []systemtasks.Task{workertest.HTTP(
		func(ctx context.Context, call systemtasks.Call) systemtasks.Outcome {
			entered <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return workertest.Done(ctx, call)
		})}}, enginetest.Workflow("w", &schema.Task{Ref: "a", Type: schema.TypeHTTP, InputParameters: map[string]schema.Value{"uri": "http://example.test/"}}))
	for range 20 {
		s.Start("w", "")
	}
	<-entered
	<-entered
	for range 20 {
		require.LessOrEqual(t, count(t, s, `SELECT count(*) FROM nf_lease WHERE ns > 0`), 2)
	}
	close(release)
}
