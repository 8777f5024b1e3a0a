package timeout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/policies/timeout"
	"nf/schema"
)

var t0 = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestDeadlinesStartAtVisibility(t *testing.T) {
	t.Parallel()
	def := &schema.TaskDefinition{ScheduleToStartTimeout: 5000, Timeout: 20_000, TotalTimeout: 60_000}
	first := timeout.First(def, t0)
	require.Equal(t, timeout.Visible{StartBy: at(5), AttBy: at(20), TotalBy: at(60)}, first)
	again := timeout.Again(def, at(30), first.TotalBy)
	require.Equal(t, timeout.Visible{StartBy: at(35), AttBy: at(50), TotalBy: at(60)}, again, "BG-17: every attempt arms its own; the total runs on")
	require.Equal(t, at(45), timeout.Redelivered(def, at(40)))
}

func TestZeroArmsNothing(t *testing.T) {
	t.Parallel()
	require.Zero(t, timeout.First(&schema.TaskDefinition{}, t0))
	require.Zero(t, timeout.OfWorkflow(&schema.Workflow{}, t0))
	require.Zero(t, timeout.OfWorkflow(&schema.Workflow{Timeout: 1000}, time.Time{}), "not admitted yet")
	require.Equal(t, at(1), timeout.OfWorkflow(&schema.Workflow{Timeout: 1000}, t0))
	g := timeout.Grant(&schema.TaskDefinition{}, t0, 0)
	require.Equal(t, timeout.Leased{LeaseMs: timeout.DefaultLease, LeaseUntil: at(3600)}, g)
}

func TestLeaseIsNeverLongerThanResponseTimeout(t *testing.T) {
	t.Parallel()
	def := &schema.TaskDefinition{ResponseTimeout: 60_000, HeartbeatTimeout: 10_000, StartToCloseTimeout: 30_000}
	for asked, want := range map[schema.Millis]schema.Millis{0: 60_000, 5000: 5000, 60_000: 60_000, 90_000: 60_000, -1: 60_000} {
		g := timeout.Grant(def, t0, asked)
		require.Equal(t, want, g.LeaseMs)
		require.Equal(t, t0.Add(time.Duration(want)*time.Millisecond), g.LeaseUntil)
		require.Equal(t, at(10), g.BeatBy)
		require.Equal(t, at(30), g.CloseBy)
	}
}

func TestFC_164_StartToCloseFiresBeforeALongerHeartbeat(t *testing.T) {
	t.Parallel()
	g := timeout.Grant(&schema.TaskDefinition{HeartbeatTimeout: 60_000, StartToCloseTimeout: 30_000}, t0, 0)
	all := []timeout.Deadline{{timeout.Heartbeat, g.BeatBy}, {timeout.StartToClose, g.CloseBy}, {timeout.Lease, g.LeaseUntil}}
	_, ok := timeout.Due(at(29), all...)
	require.False(t, ok, "never early")
	due, ok := timeout.Due(at(30), all...)
	require.True(t, ok)
	require.Equal(t, timeout.StartToClose, due.Class)
	first, ok := timeout.Earliest(all...)
	require.True(t, ok)
	require.Equal(t, timeout.StartToClose, first.Class)
}

func TestATimeoutWinsOverLostWork(t *testing.T) {
	t.Parallel()
	lost := timeout.Deadline{Class: timeout.Heartbeat, At: at(10)}
	late := timeout.Deadline{Class: timeout.Task, At: at(12)}
	due, ok := timeout.Due(at(11), lost, late)
	require.True(t, ok)
	require.Equal(t, timeout.Heartbeat, due.Class)
	due, _ = timeout.Due(at(12), lost, late)
	require.Equal(t, timeout.Task, due.Class, "both have passed when the sweep comes by")
	due, _ = timeout.Due(at(20), late, timeout.Deadline{Class: timeout.Total, At: at(11)})
	require.Equal(t, timeout.Total, due.Class)
	first, _ := timeout.Earliest(lost, timeout.Deadline{Class: timeout.Task, At: at(10)})
	require.Equal(t, timeout.Task, first.Class)
	_, ok = timeout.Earliest(timeout.Deadline{Class: timeout.Task})
	require.False(t, ok)
}

func TestBG_28_TheNearestDeadlineComesFirst(t *testing.T) {
	t.Parallel()
	first, ok := timeout.Earliest(timeout.Deadline{Class: timeout.Task, At: at(60)}, timeout.Deadline{Class: timeout.StartToClose, At: at(3)})
	require.True(t, ok)
	require.Equal(t, at(3), first.At)
}
