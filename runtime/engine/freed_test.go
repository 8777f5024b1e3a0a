//go:build unix

package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/engine"
	"nf/runtime/engine/enginetest"
	"nf/runtime/execution"
	"nf/runtime/store"
	"nf/schema"
)

// listener notes the queues whose leases ended.
type listener struct {
	mu    sync.Mutex
	freed map[store.QueueAt]int
}

func (l *listener) Ready([]store.QueueAt) {}

func (l *listener) Freed(queues []store.QueueAt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		l.freed[q]++
	}
}

func (l *listener) take(q store.QueueAt) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.freed[q]
	clear(l.freed)
	return n
}

// BG-35, BG-32: however a lease ends, whoever waits for its place is told right after the commit.
func TestBG_35_EveryEndOfALeaseIsAnnounced(t *testing.T) {
	t.Parallel()
	heard := &listener{freed: map[store.QueueAt]int{}}
	def := atOnce(func(d *schema.TaskDefinition) {
		d.Metadata.Name, d.StartToCloseTimeout, d.TimeoutPolicy, d.RetryBudget, d.Retry.Delay = "charge", 10_000, schema.TimeoutRetry, 1, 3_600_000
	})
	charge := func() []*schema.Task { return list(enginetest.Simple("a", "charge", nil)) }
	stop := append(list(simple("b")), enginetest.Terminate("stop", params{"terminationStatus": "TERMINATED"}))
	timed := enginetest.Workflow("timed", charge()...)
	timed.Timeout = 20_000
	w := enginetest.With(t, enginetest.Options{Engine: func(o *engine.Options) { o.Listener = heard }}, def, enginetest.Definition("work"), timed,
		enginetest.Workflow("flow", charge()...), enginetest.Workflow("pair", enginetest.Fork("f", charge(), list(simple("b")))...),
		enginetest.Workflow("bomb", enginetest.Fork("f", charge(), stop)...))
	at := w.QueueOf("charge")
	lost := engine.Lost{Cause: execution.CauseDeliveriesExhausted, Certain: true}
	for _, way := range []struct {
		name, workflow string
		end            func(store.Leased)
	}{
		{"complete", "flow", func(l store.Leased) { w.Report(l, enginetest.Completed("")) }},
		{"fail", "flow", func(l store.Leased) { w.Report(l, enginetest.Failed("no")) }},
		{"fail for good", "flow", func(l store.Leased) { w.Report(l, enginetest.FailedTerm("no")) }},
		{"lost", "flow", func(l store.Leased) { require.Equal(t, engine.Accepted, w.Record(enginetest.EndOf(l, lost)).Answer) }},
		{"terminate", "flow", func(l store.Leased) {
			_, err := w.Engine.Terminate(t.Context(), l.ID, "x", "ann")
			require.NoError(t, err)
		}},
		{"a sibling fails", "pair", func(store.Leased) { w.Report(w.ClaimOne("work"), enginetest.FailedTerm("no")) }},
		{"a sibling's TERMINATE", "bomb", func(store.Leased) { w.Complete("work", "") }},
		{"time-out", "flow", func(l store.Leased) {
			w.Move(11 * time.Second)
			require.Equal(t, engine.Accepted, w.Record(enginetest.EndOf(l, engine.Due{})).Answer)
		}},
	} {
		id := w.Start(way.workflow, "")
		l := w.ClaimOne("charge")
		heard.take(at)
		way.end(l)
		require.Eventually(t, func() bool { return heard.take(at) == 1 }, 30*time.Second, time.Millisecond, way.name)
		if w.Get(id).Open() {
			_, err := w.Engine.Terminate(t.Context(), id, "next", "ann")
			require.NoError(t, err)
		}
	}
}
