package systemtasks_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/systemtasks"
)

type fake struct{ t schema.TaskType }

func (f fake) Type() schema.TaskType { return f.t }
func (fake) Run(context.Context, systemtasks.Call) systemtasks.Outcome {
	return systemtasks.Completed{}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	c, err := systemtasks.NewCatalog(fake{schema.TypeHTTP}, fake{schema.TypeGRPC})
	require.NoError(t, err)
	require.Equal(t, []schema.TaskType{schema.TypeGRPC, schema.TypeHTTP}, c.Types())
	got, ok := c.Get(schema.TypeHTTP)
	require.True(t, ok)
	require.Equal(t, fake{schema.TypeHTTP}, got)
	_, ok = c.Get(schema.TypeSimple)
	require.False(t, ok)
	_, ok = systemtasks.Catalog{}.Get(schema.TypeHTTP)
	require.False(t, ok, "the zero value is empty")

	for _, bad := range [][]systemtasks.Task{{nil}, {fake{schema.TypeHTTP}, fake{schema.TypeHTTP}}, {fake{schema.TypeSimple}}, {fake{"NOPE"}}} {
		_, err := systemtasks.NewCatalog(bad...)
		require.Error(t, err)
	}
}

func TestFC_127_ReasonIsMadeValidAndCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"NUL":                      {"a\x00b", "a\uFFFDb"},
		"not UTF-8":                {"a\xff\xfeb", "a\uFFFDb"},
		"half a surrogate":         {"a\xed\xa0\x80b", "a\uFFFDb"},
		"fits exactly":             {strings.Repeat("x", 8192), strings.Repeat("x", 8192)},
		"1 MB":                     {strings.Repeat("x", 1<<20), strings.Repeat("x", 8192)},
		"cut inside a character":   {strings.Repeat("x", 8191) + "é", strings.Repeat("x", 8191)},
		"cut after it":             {strings.Repeat("x", 8190) + "éé", strings.Repeat("x", 8190) + "é"},
		"cut inside a long one":    {strings.Repeat("x", 8189) + "🔑", strings.Repeat("x", 8189)},
		"bad byte where it is cut": {strings.Repeat("x", 8191) + "\xff", strings.Repeat("x", 8191)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, ok := systemtasks.Conclude(systemtasks.Failed{Cause: "HTTP_STATUS", Reason: c.in}, nil).(systemtasks.Failed)
			require.True(t, ok)
			require.Equal(t, c.want, out.Reason)
			require.True(t, utf8.ValidString(out.Reason))
		})
	}
}

func TestConcludeBoundsOutputs(t *testing.T) {
	t.Parallel()
	deep := any("x")
	for range 256 {
		deep = []any{deep}
	}
	for name, out := range map[string]map[string]any{
		"over 6 MiB":      {"body": strings.Repeat("x", 6<<20)},
		"grows when JSON": {"body": strings.Repeat("\x01", 2<<20)},
		"nested too deep": {"body": deep},
		"no JSON":         {"body": struct{}{}},
	} {
		for _, o := range []systemtasks.Outcome{systemtasks.Completed{Output: out}, systemtasks.Failed{Cause: "HTTP_STATUS", Output: out}} {
			failed, ok := systemtasks.Conclude(o, nil).(systemtasks.Failed)
			require.True(t, ok, name)
			require.Equal(t, systemtasks.CauseOutputTooLarge, failed.Cause, name)
			require.True(t, failed.Terminal, name)
			require.Nil(t, failed.Output, name)
		}
	}
	fits := map[string]any{"body": strings.Repeat("x", 6<<20-len(`{"body":""}`))}
	require.Equal(t, systemtasks.Completed{Output: fits}, systemtasks.Conclude(systemtasks.Completed{Output: fits}, nil))
	require.Equal(t, systemtasks.Completed{Output: map[string]any{}}, systemtasks.Conclude(systemtasks.Completed{}, nil))
	require.Equal(t, systemtasks.Released{Sent: true}, systemtasks.Conclude(systemtasks.Released{Sent: true}, nil))
}

func TestConcludeBoundsTheMinimumWait(t *testing.T) {
	t.Parallel()
	for given, want := range map[schema.Millis]schema.Millis{-1: 0, 0: 0, 5: 5, 86_400_000: 86_400_000, 1 << 60: 86_400_000} {
		out := systemtasks.Conclude(systemtasks.Failed{MinWait: given}, nil)
		require.Equal(t, want, out.(systemtasks.Failed).MinWait) //nolint:forcetypeassert // the line above fails otherwise
	}
}

func TestNoOutcomeIsAFailure(t *testing.T) {
	t.Parallel()
	require.IsType(t, systemtasks.Failed{}, systemtasks.Conclude(nil, nil))
}
