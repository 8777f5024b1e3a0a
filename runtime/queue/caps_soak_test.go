//go:build soak && unix

package queue_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/queue/queuetest"
	"nf/runtime/store/storetest"
)

// The stated dose: 16 dispatchers in four processes of the operating system, 20,000 grants for each cap of 1, 2 and 5.
func TestSoakBG_38_Caps(t *testing.T) {
	for _, limit := range []int64{1, 2, 5} {
		t.Run(fmt.Sprintf("cap %d", limit), func(t *testing.T) {
			w := queuetest.New(t, queuetest.Definition("charge", limit))
			w.WatchCaps()
			w.Enqueue("charge", 100)
			fourProcesses(t, w, 20_000, "charge")
			require.Equal(t, 100, w.Count(`SELECT (SELECT count(*) FROM nf_ready WHERE ns > 0) + (SELECT count(*) FROM nf_lease WHERE ns > 0)`))
		})
	}
}

// The same for semaphores of one to four permits in overlapping sets.
func TestSoakFC_092_Semaphores(t *testing.T) {
	w, names := semaphoreWorld(t)
	fourProcesses(t, w, 20_000, names...)
	for _, name := range names {
		require.Positive(t, w.Count(`SELECT count(*) FROM test_history h JOIN nf_queue q ON q.ns = h.ns AND q.queue_id = h.queue_id WHERE q.name = $1`, name), name)
	}
}

const (
	childURL    = "NF_TEST_STORM_URL"
	childQueues = "NF_TEST_STORM_QUEUES"
	childGrants = "NF_TEST_STORM_GRANTS"
)

func fourProcesses(t *testing.T, w *queuetest.World, grants int, queues ...string) {
	t.Helper()
	for _, name := range queues {
		w.At(name)
	}
	stop := make(chan struct{})
	var children []*exec.Cmd
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSoakStormChild$", "-test.timeout=60m")
		cmd.Env = append(os.Environ(), childURL+"="+w.URL, childQueues+"="+strings.Join(queues, ","), childGrants+"="+strconv.Itoa(grants/4))
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		require.NoError(t, cmd.Start())
		children = append(children, cmd)
	}
	go w.GiveUpUntil(stop)
	for _, cmd := range children {
		require.NoError(t, cmd.Wait())
	}
	close(stop)
	require.GreaterOrEqual(t, w.Grants(), grants)
	w.NeverOver()
	w.Healthy()
	require.Zero(t, storetest.Deadlocks(t, w.URL))
}

// TestSoakStormChild is one of the four processes.
func TestSoakStormChild(t *testing.T) {
	url := os.Getenv(childURL)
	if url == "" {
		return // runs as a child only
	}
	grants, err := strconv.Atoi(os.Getenv(childGrants))
	require.NoError(t, err)
	w := queuetest.Join(t, url)
	storm{processes: 1, dispatchers: 4, grants: grants, queues: strings.Split(os.Getenv(childQueues), ","), leaseMs: 500, forget: 200}.run(t, w)
}

// 1,000 repeats of the barrier, 10,000 tasks for 64 pollers.
func TestSoakBG_38_PollersReleasedAtOnce(t *testing.T) { barrier(t, 1000) }

func TestSoakBG_122_NoTaskIsGivenTwice(t *testing.T) { manyPollers(t, 10_000) }

// 200 capped queues.
func TestSoakFC_098_CapsOnManyQueues(t *testing.T) { manyCaps(t, 200, 10_000) }

// 20,000 waiting behind a cap of four, six workers.
func TestSoakFC_097_RefusedClaimsReadNoBacklog(t *testing.T) { refusedClaims(t, 20_000) }
