// Package taskstest holds every system task to the contract of systemtasks: it honours cancellation, never returns nil, stays within the
// limits, shows no secret, changes nothing of its call and may be run by many at once.
package taskstest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
)

// Subject is a task type with the calls that show how it behaves.
type Subject struct {
	Task systemtasks.Task
	// Good makes a call that completes.
	Good func() systemtasks.Call
	// Hang makes a call whose endpoint takes the request and never answers. The channel says that it has come.
	Hang func() (systemtasks.Call, <-chan struct{})
	// Echo makes a call that sends Plain, by way of a secretRef, to an endpoint that gives it back in every place and encoding it can.
	Echo func() systemtasks.Call
}

// Plain is the value of every reference that Resolve is asked for: printable ASCII, which all encodings change.
const Plain = `s3cr3t "value" / for + 100%? <ok>`

// Resolve gives Plain, behind whatever reference.
func Resolve(context.Context, string, schema.SecretRef) (string, error) { return Plain, nil }

// soon is how long anything may take that must happen soon.
const soon = 10 * time.Second

// Run holds the subject to the contract.
func Run(t *testing.T, s Subject) {
	t.Helper()
	t.Run("type", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, schema.ClassRunner, s.Task.Type().Class())
	})
	t.Run("completes and changes nothing of its call", func(t *testing.T) {
		t.Parallel()
		call, same := s.Good(), s.Good()
		out := s.Task.Run(t.Context(), call)
		Check(t, out)
		require.IsType(t, systemtasks.Completed{}, out, "%+v", out)
		require.Equal(t, same.Input, call.Input)
	})
	t.Run("many at once", func(t *testing.T) { t.Parallel(); manyAtOnce(t, s) })
	t.Run("ended before it begins", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, systemtasks.Released{}, s.Task.Run(ctx, s.Good()))
	})
	t.Run("ended under way", func(t *testing.T) { t.Parallel(); endedUnderWay(t, s) })
	t.Run("out of time", func(t *testing.T) {
		t.Parallel()
		call, _ := s.Hang()
		call.Input["timeoutMs"] = json.Number("150")
		out, ok := s.Task.Run(t.Context(), call).(systemtasks.Failed)
		require.True(t, ok)
		Check(t, out)
		require.Equal(t, systemtasks.CauseCallTimeout, out.Cause, out.Reason)
		require.False(t, out.Terminal)
	})
	t.Run("odd input", func(t *testing.T) { t.Parallel(); oddInput(t, s) })
	t.Run("no secret comes back", func(t *testing.T) {
		t.Parallel()
		out := s.Task.Run(t.Context(), s.Echo())
		Check(t, out)
		NoSecret(t, out)
	})
	t.Run("secrets that do not resolve", func(t *testing.T) { t.Parallel(); unresolved(t, s) })
}

func manyAtOnce(t *testing.T, s Subject) {
	t.Helper()
	outcomes := make([]systemtasks.Outcome, 32)
	var running sync.WaitGroup
	for i := range outcomes {
		running.Go(func() { outcomes[i] = s.Task.Run(t.Context(), s.Good()) })
	}
	running.Wait()
	for _, out := range outcomes {
		require.IsType(t, systemtasks.Completed{}, out, "%+v", out)
	}
}

func endedUnderWay(t *testing.T, s Subject) {
	t.Helper()
	call, came := s.Hang()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan systemtasks.Outcome, 1)
	go func() { done <- s.Task.Run(ctx, call) }()
	ended, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	select {
	case <-came:
	case out := <-done:
		require.FailNow(t, "the call ended before it was canceled", "%+v", out)
	case <-ended.Done():
		require.FailNow(t, "the request never came")
	}
	cancel()
	select {
	case out := <-done:
		require.Equal(t, systemtasks.Released{Sent: true}, out)
	case <-ended.Done():
		require.FailNow(t, "the task did not return after its context ended")
	}
}

// oddInput puts odd values in the place of every key of a good input, and adds keys.
func oddInput(t *testing.T, s Subject) {
	t.Helper()
	deep := any("x")
	for range 300 {
		deep = map[string]any{"a": deep}
	}
	odd := []any{
		nil, true, "", "\x00", "\xff\xfe", "\r\nX: y", strings.Repeat("x", 100_000), json.Number("-1"), json.Number("1e400"), json.Number("1.5"),
		json.Number("99999999999999999999"),
		[]any{},
		[]any{map[string]any{}},
		map[string]any{},
		map[string]any{"": nil},
		map[string]any{"a\x00b": "c\nd"},
		map[string]any{"secretRef": "x"},
		map[string]any{"x": map[string]any{"secretRef": map[string]any{"name": "..", "key": "/"}}},
		deep,
	}
	keys := slices.Sorted(maps.Keys(s.Good().Input))
	for _, key := range append(keys, "headers", "metadata", "request", "body", "query", "timeoutMs", "unheard of") {
		for _, v := range odd {
			call := s.Good()
			call.Input[key] = v
			Check(t, s.Task.Run(t.Context(), call))
		}
	}
	for _, call := range []systemtasks.Call{{}, {Input: map[string]any{}}, {Target: &schema.Target{}}, {Input: s.Good().Input}} {
		out := s.Task.Run(t.Context(), call)
		Check(t, out)
	}
}

func unresolved(t *testing.T, s Subject) {
	t.Helper()
	for name, resolve := range map[string]func(context.Context, string, schema.SecretRef) (string, error){
		"error": func(context.Context, string, schema.SecretRef) (string, error) {
			return "", errors.New("not there today")
		},
		"no provider": nil,
	} {
		call := s.Echo()
		call.Secrets = resolve
		out, ok := s.Task.Run(t.Context(), call).(systemtasks.Failed)
		require.True(t, ok, name)
		Check(t, out)
		require.Equal(t, systemtasks.CauseSecretUnavailable, out.Cause, name)
		require.False(t, out.Terminal, "it may be there the next time")
	}
	call := s.Echo()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call.Secrets = func(context.Context, string, schema.SecretRef) (string, error) { cancel(); return "", ctx.Err() }
	require.Equal(t, systemtasks.Released{}, s.Task.Run(ctx, call))
}

// Check holds an outcome to what every outcome must keep.
func Check(t *testing.T, out systemtasks.Outcome) {
	t.Helper()
	switch out := out.(type) {
	case systemtasks.Completed:
		require.NotNil(t, out.Output)
		checkOutput(t, out.Output)
	case systemtasks.Failed:
		require.Contains(t, []string{
			systemtasks.CauseHTTPStatus, systemtasks.CauseGRPCStatus, systemtasks.CauseConnectionFailed, systemtasks.CauseCallTimeout, systemtasks.CauseInvalidRequest,
			systemtasks.CauseInputInvalid, systemtasks.CauseOutputInvalid, systemtasks.CauseOutputTooLarge, systemtasks.CauseSecretUnavailable,
		}, out.Cause)
		require.NotEmpty(t, out.Reason)
		require.LessOrEqual(t, len(out.Reason), systemtasks.MaxReason)
		require.True(t, utf8.ValidString(out.Reason))
		require.NotContains(t, out.Reason, "\x00")
		require.True(t, out.MinWait >= 0 && out.MinWait <= systemtasks.MaxWait)
		if out.MinWait > 0 {
			require.NotEmpty(t, out.Source)
			require.False(t, out.Terminal, "what is final waits for nothing")
		}
		if out.Output != nil {
			checkOutput(t, out.Output)
		}
	case systemtasks.Released:
	default:
		require.FailNow(t, "no outcome", "%#v", out)
	}
}

func checkOutput(t *testing.T, output map[string]any) {
	t.Helper()
	text, err := jsontext.Encode(output)
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), systemtasks.MaxOutput)
	_, err = jsontext.DecodeObject(text, jsontext.Limits{})
	require.NoError(t, err)
}

// NoSecret looks for Plain in all encodings of contract 2.7 in whatever an outcome shows.
func NoSecret(t *testing.T, out systemtasks.Outcome) {
	t.Helper()
	var shown string
	switch out := out.(type) {
	case systemtasks.Completed:
		shown = render(t, out.Output)
	case systemtasks.Failed:
		shown = out.Reason + render(t, out.Output)
	case systemtasks.Released:
	}
	require.Contains(t, shown, systemtasks.Mask, "the endpoint must have given it back")
	lower := strings.ToLower(shown)
	for _, secret := range []string{Plain, "user:" + Plain} {
		quoted, err := json.Marshal(secret)
		require.NoError(t, err)
		for name, form := range map[string]string{
			"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "JSON": strings.Trim(string(quoted), `"`),
			"base64": base64.RawStdEncoding.EncodeToString([]byte(secret)), "base64url": base64.RawURLEncoding.EncodeToString([]byte(secret)),
			"hex": hex.EncodeToString([]byte(secret)),
		} {
			require.NotContains(t, lower, strings.ToLower(form), name)
		}
	}
}

func render(t *testing.T, output map[string]any) string {
	t.Helper()
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, e := range v {
				fmt.Fprintln(&b, name)
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		default:
			fmt.Fprintln(&b, v)
		}
	}
	walk(output)
	return b.String()
}

// Encodings gives a secret in every form that contract 2.7 names, for endpoints that echo.
func Encodings(secret string) []string {
	quoted, err := json.Marshal(secret)
	if err != nil {
		return []string{secret}
	}
	raw := []byte(secret)
	var everyByte strings.Builder
	for _, c := range raw {
		fmt.Fprintf(&everyByte, "%%%02x", c)
	}
	return []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), everyByte.String(), string(quoted),
		base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+secret)), "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secret+":x")),
		hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)),
	}
}
