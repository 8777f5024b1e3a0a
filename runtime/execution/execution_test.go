package execution_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/runtime/execution"
	"nf/schema"
)

func TestKindsAndTypesAreOneToOne(t *testing.T) {
	t.Parallel()
	for k := execution.KindSimple; k <= execution.KindWait; k++ {
		require.NotEmpty(t, k.String())
		require.Equal(t, k, execution.KindOf(k.Type()))
		require.NotZero(t, k.Class())
	}
	for _, k := range []execution.Kind{0, -1, 10, 26} {
		require.Empty(t, k.Type())
		require.Zero(t, k.Class())
	}
	require.Zero(t, execution.KindOf(""))
	require.Zero(t, execution.KindOf("NOPE"))
}

func TestStatusNames(t *testing.T) {
	t.Parallel()
	for _, s := range []execution.Status{10, 12, 20, 21, 22, 23, 24} {
		require.Equal(t, s, execution.ParseStatus(s.String()))
	}
	require.Empty(t, execution.StatusOpen.String())
	require.Empty(t, execution.Status(99).String())
	require.Equal(t, execution.StatusOpen, execution.ParseStatus(""))
	require.Equal(t, "COMPLETED_WITH_ERRORS", execution.TimedOut.RunName(true))
	require.Equal(t, "FAILED_WITH_TERMINAL_ERROR", execution.FailedTerm.RunName(false))
	require.True(t, execution.Skipped.Successful(false))
	require.True(t, execution.Failed.Successful(true))
	require.False(t, execution.Canceled.Successful(false))
	require.True(t, execution.TimedOut.Retryable())
	require.False(t, execution.FailedTerm.Retryable())
}

func TestOpenNames(t *testing.T) {
	t.Parallel()
	for want, at := range map[string]execution.Attempt{
		"SCHEDULED":   {Kind: execution.KindSimple, Place: execution.InReady},
		"IN_PROGRESS": {Kind: execution.KindHTTP, Place: execution.InLease},
		"WAITING":     {Kind: execution.KindWait, Place: execution.InTimer},
	} {
		require.Equal(t, want, at.OpenName())
	}
	require.Equal(t, "IN_PROGRESS", execution.Attempt{Kind: execution.KindJoin, Place: execution.InTimer}.OpenName())
	require.Equal(t, "SCHEDULED", execution.Attempt{Kind: execution.KindSimple, Place: execution.InTimer}.OpenName())
}

func TestEarliestDeadline(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	_, armed := execution.Attempt{}.Deadline()
	require.False(t, armed)
	at := execution.Attempt{Place: execution.InReady, StartBy: t0.Add(2), CloseBy: t0, AttBy: t0.Add(time.Second), TotalBy: t0.Add(time.Hour)}
	class, armed := at.Deadline()
	require.True(t, armed)
	require.Equal(t, execution.ClassScheduleToStart, class)
	at.Place, at.LeaseUntil, at.CloseBy = execution.InLease, t0.Add(time.Second), t0.Add(time.Minute)
	class, armed = at.Deadline()
	require.True(t, armed)
	require.Equal(t, execution.ClassTaskTimeout, class, "a timeout wins over lost work that is due together")
	at.BeatBy = t0
	class, _ = at.Deadline()
	require.Empty(t, class)
}

func TestFC_127_ReasonsAreMadeFit(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\uFFFDb", execution.CutReason("a\x00b", 100))
	require.Equal(t, "a\uFFFDb", execution.CutReason("a\xed\xa0\x80b", 100), "half a surrogate pair")
	require.Equal(t, "é", execution.CutReason("éé", 3), "cut on a character boundary")
	require.Len(t, execution.CutReason(strings.Repeat("x", 1<<20), execution.MaxReason), execution.MaxReason)
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		cut := execution.CutReason(text, limit)
		require.LessOrEqual(t, len(cut), limit)
		require.True(t, utf8.ValidString(cut))
		require.NotContains(t, cut, "\x00")
		require.Equal(t, cut, execution.CutReason(cut, limit))
	})
}

func TestTaskID(t *testing.T) {
	t.Parallel()
	id, err := execution.ParseUUID("0198c7a0-0000-7000-8000-000000000001")
	require.NoError(t, err)
	text := execution.TaskID(id, 12, 3)
	require.Equal(t, "0198c7a0-0000-7000-8000-000000000001.12.3", text)
	back, no, attempt, err := execution.ParseTaskID(text)
	require.NoError(t, err)
	require.Equal(t, id, back)
	require.EqualValues(t, 12, no)
	require.EqualValues(t, 3, attempt)
	for _, bad := range []string{
		"", text + ".1", "x.1.1", id.String() + ".0.1", id.String() + ".1.0", id.String() + ".01.1", id.String() + ".+1.1",
		id.String() + ".1", id.String() + ".4294967296.1", id.String() + ".1.-1", " " + text,
	} {
		_, _, _, err := execution.ParseTaskID(bad)
		require.ErrorIs(t, err, execution.ErrBadTaskID, bad)
	}
}

func TestX17_IdempotencyKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, "default/id/charge/0", execution.IdempotencyKey("default", "id", "charge", "0", 0))
	require.Equal(t, "default/id/charge/2.1/r3", execution.IdempotencyKey("default", "id", "charge", "2.1", 3))
}

func TestUUID(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 23, 59, 59, 999_000_000, time.UTC)
	id := execution.NewUUID(at, [10]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	require.Equal(t, at, id.Time())
	require.Equal(t, "20261201", id.Day())
	require.Equal(t, byte('7'), id.String()[14])
	back, err := execution.ParseUUID(strings.ToUpper(id.String()))
	require.NoError(t, err)
	require.Equal(t, id, back)
	for _, bad := range []string{"", id.String()[1:], strings.ReplaceAll(id.String(), "-", "x"), "0198c7a0-0000-7000-8000-00000000000g"} {
		_, err := execution.ParseUUID(bad)
		require.ErrorIs(t, err, execution.ErrBadUUID)
	}
}

func TestNeedsAreEmptyOnlyWithoutAny(t *testing.T) {
	t.Parallel()
	require.True(t, execution.Needs{}.Empty())
	for _, n := range []execution.Needs{
		{Scopes: []int32{1}}, {Tasks: []int32{1}}, {Inputs: []int32{1}}, {Input: true}, {Vars: true}, {Budgets: []int32{1}},
	} {
		require.False(t, n.Empty())
	}
	require.Equal(t, schema.ClassWaiting, execution.KindWait.Class())
}
