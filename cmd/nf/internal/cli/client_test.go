package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/runtime/execution"
)

func clientOf(t *testing.T, handler http.HandlerFunc) *client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return &client{base: s.URL, key: setting{value: "nfk_x", name: "NF_API_KEY"}, address: setting{name: "NF_URL"}, actor: "ada", http: httpClient(), patience: 10 * time.Second}
}

// A redirect could carry the key to another host: none is followed.
func TestClientFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	require.ErrorContains(t, c.get(t.Context(), "/v1/health", nil, nil), "nf follows none")
	require.Zero(t, elsewhere.Load())
}

func TestClientRepeatsWhatIsSafeAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, safe := range []bool{true, false} {
		var calls atomic.Int32
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Nf-Actor") != "ada" || r.Header.Get("X-Api-Key") != "nfk_x" {
				t.Errorf("headers %v", r.Header)
			}
			if calls.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			reply(w, http.StatusOK, map[string]any{})
		})
		err := c.do(t.Context(), ask{method: http.MethodPost, path: "/v1/x", body: map[string]any{"a": 1}, safe: safe}, nil)
		if safe {
			require.NoError(t, err)
			require.EqualValues(t, 2, calls.Load())
			continue
		}
		require.Error(t, err)
		require.EqualValues(t, 1, calls.Load())
	}
}

func TestExitCodesOfRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{
		"404 NOT_FOUND": exitFailed, "409 CONFLICT": exitRefused, "409 RETIRED": exitRefused, "409 REVISION_CONFLICT": exitStale, "429 LIMIT_EXCEEDED": exitRefused,
		"400 INVALID_ARGUMENT": exitUsage, "400 SCHEMA_VIOLATION": exitFindings, "401 UNAUTHENTICATED": exitFailed, "403 INSUFFICIENT_SCOPE": exitFailed,
		"413 PAYLOAD_TOO_LARGE": exitFailed, "500 INTERNAL": exitFailed, "503 UNAVAILABLE": exitFailed,
	} {
		status, word, _ := strings.Cut(code, " ")
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			n := int(status[0]-'0')*100 + int(status[1]-'0')*10 + int(status[2]-'0')
			reply(w, n, map[string]any{"error": word, "message": "no"})
		})
		c.patience = 0
		refusal := refusalOf(c.get(t.Context(), "/", nil, nil))
		require.NotNil(t, refusal, code)
		require.Equal(t, want, exitOfRefusal(refusal), code)
	}
}

// The window of a prefix holds the start of every execution whose id begins so.
func TestIDWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1_600_000_000_000, 4_000_000_000_000).Draw(t, "at"))
		id := execution.NewUUID(at, [10]byte(rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))).String()
		n := rapid.IntRange(leastPrefix, len(id)).Draw(t, "length")
		from, to, ok := idWindow(id[:n])
		require.True(t, ok)
		require.True(t, from.Before(at) && to.After(at), "%s: %s is not between %s and %s", id[:n], at, from, to)
	})
	for _, bad := range []string{"0190000g", "01900000_", "0190000-", strings.Repeat("0", 37), "ffffffff"} {
		_, _, ok := idWindow(bad)
		require.False(t, ok, bad)
	}
}

func TestBackOffEndsAtHalfAMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		try := rapid.IntRange(0, 1000).Draw(t, "try")
		wait := backOff(try, time.Duration(rapid.Int64().Draw(t, "asked")))
		require.True(t, wait >= 100*time.Millisecond && wait <= maxBackOff, "%s", wait)
	})
}
