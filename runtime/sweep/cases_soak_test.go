//go:build soak && unix

package sweep_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/worker/workertest"
	"nf/schema"
)

// 10,000 waits of five seconds, a restart in between.
func TestSoakBG_82_FC_163_EveryWaitEnds(t *testing.T) { everyWaitEnds(t, 10_000) }

// 5,000 runs under a cap of one; the worker dies at random while it holds the only place.
func TestSoakFC_085_CapOfOneDrainsThoughWorkersDie(t *testing.T) {
	const many = 5000
	c := &workertest.Clock{}
	s := workertest.New(t, still(c), one("charge", func(d *schema.TaskDefinition) { d.ConcurrentExecLimit, d.ResponseTimeout = 1, 2000 })...)
	for range many / 50 {
		batch := make([]engine.StartRequest, 50)
		for i := range batch {
			batch[i] = engine.StartRequest{Namespace: enginetest.Namespace, Workflow: "w"}
		}
		for _, r := range s.Engine.Start(t.Context(), batch) {
			require.NoError(t, r.Err)
		}
	}
	for done, turn := 0, 0; done < many; turn++ {
		require.Less(t, turn, 10*many)
		tasks := s.Lease("charge", 3, 0).Tasks
		require.LessOrEqual(t, len(tasks), 1)
		switch {
		case len(tasks) == 0:
			c.Advance(2 * time.Second)
			pass(t, s)
		case rand.IntN(10) == 0 && tasks[0].Deliveries < 5: // this worker dies
		default:
			s.Report(tasks[0].Leased, enginetest.Completed(""))
			done++
		}
	}
	require.Equal(t, many, count(t, s, `SELECT count(*) FROM nf_exec_closed WHERE status = 10`))
}

// A process that sweeps dies at every statement boundary of every transaction of a sweep, one after another: each thing that was due happens, once.
func TestSoakBG_128_FC_094_SweepDiesAtEveryStatementBoundary(t *testing.T) {
	f := newFleet(t)
	for _, at := range f.boundaries() {
		f.dies(at)
	}
}
