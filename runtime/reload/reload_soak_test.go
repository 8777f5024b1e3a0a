//go:build soak && unix

package reload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/clock"
	"nf/schema"
)

// p18 at the stated dose: 3,000 files, 20 checkouts.
func TestSoakP18_CheckoutsOfThousandsOfFiles(t *testing.T) {
	t.Parallel()
	flip(t, 3000, 20)
}

// w09 at the stated dose: a change every 100 ms for 30 s is in force at the latest 5 s after it was made, and the loop looks no more often than it must.
func TestSoakW09_ATrickleOfChanges(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) {
		o.Watch, o.Poll, o.Quiet, o.Clock = true, time.Hour, 150*time.Millisecond, clock.System{}
	}, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation == 1 })
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range 300 {
		<-tick.C
		tmp := filepath.Join(h.dir, "a.tmp")
		require.NoError(t, os.WriteFile(tmp, []byte(semaphore("a", i+2)), 0o600))
		require.NoError(t, os.Rename(tmp, strings.TrimSuffix(tmp, ".tmp")+".yaml"))
	}
	h.eventually("the last one", func() bool { return h.state() == OK && h.permits("a") == 301 })
	applied := h.counts()[Applied]
	require.GreaterOrEqual(t, applied, 5, "one every 5 s at least, however slow the machine")
	require.LessOrEqual(t, applied, 60)
}

// permits gives the permits of a semaphore in force.
func (h *host) permits(name string) int64 {
	h.t.Helper()
	require.NoError(h.t, h.registry.Refresh(h.t.Context()))
	o, ok := h.registry.Snapshot().Object(schema.Address{Kind: schema.KindSemaphore, Namespace: schema.DefaultNamespace, Name: name})
	require.True(h.t, ok)
	return o.Value.(*schema.Semaphore).Permits
}
