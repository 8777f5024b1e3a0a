//go:build unix

package reload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/loader"
	"nf/loader/plan"
	"nf/loader/snapshot"
	"nf/runtime/clock"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/store/storetest"
	"nf/runtime/telemetry"
	"nf/schema"
	"nf/schema/spec"
)

// host is a group of projects on a database of its own.
type host struct {
	*Group
	t        *testing.T
	dir      string // of the first project
	url      string
	store    *store.Store
	registry *registry.Registry
	applier  *Applier
	clock    *clock.Fake
	metrics  *telemetry.Metrics

	mu   sync.Mutex
	news []Event
}

// newHost makes a group of projects in folders; "" is a fresh one. Nothing runs yet. The clock stands still until it is told.
func newHost(t *testing.T, change func(*Options), folders ...string) *host {
	t.Helper()
	return hostOn(t, storetest.URL(t), change, folders...)
}

func hostOn(t *testing.T, url string, change func(*Options), folders ...string) *host {
	t.Helper()
	h := &host{t: t, url: url, clock: clock.NewFake(time.Now()), metrics: telemetry.New("test", "")}
	for i := range folders {
		if folders[i] == "" {
			folders[i] = t.TempDir()
		}
	}
	h.dir = folders[0]
	h.store = storetest.Open(t, url)
	s := h.store
	var err error
	h.registry, err = registry.Open(t.Context(), s)
	require.NoError(t, err)
	validator, err := spec.Compile()
	require.NoError(t, err)
	h.applier = &Applier{Registry: h.registry, Actor: "tester", Build: 1, Plan: planOn(s)}
	opt := Options{
		Load: func(ctx context.Context, snap snapshot.Snapshot) (loader.Bundle, diagList) {
			return loader.Load(ctx, snap, validator)
		},
		Apply: h.applier.Apply, Clock: h.clock, Jitter: func() float64 { return 0.5 }, Metrics: h.metrics,
		Told: func(e Event) { h.mu.Lock(); defer h.mu.Unlock(); h.news = append(h.news, e) },
	}
	if change != nil {
		change(&opt)
	}
	h.Group = New(opt, folders)
	return h
}

// planOn plans as the command does, with the order of commits (P11).
func planOn(s *store.Store) func(context.Context, Loaded) (plan.Plan, plan.Input, error) {
	return func(ctx context.Context, in Loaded) (plan.Plan, plan.Input, error) {
		b := in.Bundle
		digest := digestText(b.Digest)
		mine := b.Commit
		if mine == "" {
			mine = digest
		}
		return registry.Plan(ctx, s, plan.Input{
			Project: b.Project.Metadata.Name, Environment: storetest.Environment, Desired: b.Set, Origins: b.Origins, Locate: b.Locate, ForApply: true,
			Source: plan.Source{Commit: b.Commit, Branch: b.Branch, Digest: digest},
			Order:  &plan.OrderFacts{Mine: mine, CommittedAt: in.Snapshot.CommittedAt, Parents: in.Snapshot.Parents, ChangedFrom: in.ChangedFrom},
			Ancestry: func(inForce string) plan.Ancestry {
				known := snapshot.GitAncestry(ctx, in.Folder, mine, inForce)
				return plan.Ancestry{InForceIsMine: truth(known.OtherIsMine), MineIsInForce: truth(known.MineIsOther)}
			},
		})
	}
}

func truth(known *bool) plan.Truth {
	switch {
	case known == nil:
		return plan.Unknown
	case *known:
		return plan.Yes
	}
	return plan.No
}

// run runs the loops until the test ends.
func (h *host) run() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Run(ctx) }()
	h.t.Cleanup(func() { cancel(); <-done })
}

// look looks at the first project once.
func (h *host) look(w Wake) Verdict { h.t.Helper(); return h.projects[0].look(h.t.Context(), w) }

// due says what asks for a look at the first project now.
func (h *host) due() Wake { w, _ := h.projects[0].due(); return w }

func (h *host) state() State { return h.Status()[0].State }

// counts counts the news by result.
func (h *host) counts() map[Result]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[Result]int{}
	for _, e := range h.news {
		n[e.Status.Result]++
	}
	return n
}

// inForce lists what is in force, by address.
func (h *host) inForce() []string {
	h.t.Helper()
	require.NoError(h.t, h.registry.Refresh(h.t.Context()))
	all := []string{}
	for _, kind := range []schema.Kind{schema.KindSemaphore, schema.KindTarget, schema.KindTaskDefinition, schema.KindWorkflow} {
		for _, o := range h.registry.Snapshot().Objects(kind, 0) {
			if !o.Retired() {
				all = append(all, o.Address.Name)
			}
		}
	}
	return all
}

func (h *host) inSync(names ...string) {
	h.t.Helper()
	require.Equal(h.t, OK, h.state(), "%+v", h.Status())
	require.Equal(h.t, names, h.inForce())
}

// eventually waits for what happens on the side.
func (h *host) eventually(what string, done func() bool) {
	h.t.Helper()
	require.Eventually(h.t, done, 40*time.Second, 10*time.Millisecond, what)
}

const projectFile = "apiVersion: nf/v1\nkind: Project\nmetadata: {name: p}\n"

func semaphore(name string, permits int) string {
	return fmt.Sprintf("apiVersion: nf/v1\nkind: Semaphore\nmetadata: {name: %s}\nspec: {permits: %d}\n", name, permits)
}

// write writes files below dir.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

func commit(t testing.TB, dir string) string {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "change")
	return git(t, dir, "rev-parse", "HEAD")
}

// 55–57: a good set goes in, a broken one changes nothing and is told once, the old good one clears the failure.
func TestALastGoodSetIsKept(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	require.Equal(t, Applied, h.look(Poll).Result)
	h.inSync("a")
	require.Equal(t, Unchanged, h.look(Poll).Result)

	write(t, h.dir, map[string]string{"a.yaml": "apiVersion: nf/v1\nkind: Semaphore\nmetadata: {name: a}\nspec: {permit: 1}\n"})
	for range 3 {
		v := h.look(Poll)
		require.Equal(t, Failed, v.Result)
		require.EqualValues(t, 1, v.Generation)
		require.NotEmpty(t, v.Findings)
	}
	require.Equal(t, StateFailed, h.state())
	require.Equal(t, []string{"a"}, h.inForce())
	require.Equal(t, 1, h.counts()[Failed], "told once for each content")
	require.NotNil(t, h.Status()[0].OutOfSync)

	write(t, h.dir, map[string]string{"a.yaml": semaphore("a", 1)})
	require.Equal(t, Unchanged, h.look(Poll).Result)
	h.inSync("a")
	require.Nil(t, h.Status()[0].OutOfSync)
	require.Empty(t, h.Status()[0].Findings)
}

// P12: broken since the process began, with a generation in force: degraded.
func TestBrokenSinceTheStartIsDegraded(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	h.look(Poll)
	write(t, h.dir, map[string]string{"nf.yaml": "- not a project\n"})
	next := hostOn(t, h.url, nil, h.dir)
	require.Equal(t, Failed, next.look(Poll).Result)
	require.Equal(t, StateDegraded, next.state())
}

// w02, w03: the swap of a mounted ConfigMap is seen each time, as one reload.
func TestW02_AConfigMapSwapIsOneReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Clock = true, time.Hour, clock.System{} }, "")
	mount := func(version string, permits int) {
		write(t, h.dir, map[string]string{"..v" + version + "/nf.yaml": projectFile, "..v" + version + "/a.yaml": semaphore("a", permits)})
		require.NoError(t, os.Symlink("..v"+version, filepath.Join(h.dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(h.dir, "..data_tmp"), filepath.Join(h.dir, "..data")))
	}
	mount("1", 1)
	for _, name := range []string{"nf.yaml", "a.yaml"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(h.dir, name)))
	}
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation == 1 })
	mount("2", 2)
	h.eventually("second", func() bool { return h.Status()[0].Generation == 2 })
	mount("3", 3)
	h.eventually("third", func() bool { return h.Status()[0].Generation == 3 })
	require.Equal(t, 3, h.counts()[Applied])
	require.Zero(t, h.counts()[Failed])
	h.inSync("a")
}

// A source behind a chain of links, as git-sync makes it, is followed when one of them is turned.
func TestALinkThatIsTurnedIsFollowed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write(t, base, map[string]string{"v1/nf.yaml": projectFile, "v1/a.yaml": semaphore("a", 1), "v2/nf.yaml": projectFile, "v2/a.yaml": semaphore("a", 2)})
	turn := func(to string) {
		require.NoError(t, os.Symlink(to, filepath.Join(base, "tmp")))
		require.NoError(t, os.Rename(filepath.Join(base, "tmp"), filepath.Join(base, "current")))
	}
	turn("v1")
	require.NoError(t, os.MkdirAll(filepath.Join(base, "mnt"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(base, "current"), filepath.Join(base, "mnt/app")))
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Clock = true, time.Hour, clock.System{} }, filepath.Join(base, "mnt/app"))
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation == 1 })
	turn("v2")
	h.eventually("second", func() bool { return h.Status()[0].Generation == 2 })
	require.NoError(t, os.RemoveAll(filepath.Join(base, "v1")))
	write(t, base, map[string]string{"v2/a.yaml": semaphore("a", 3)})
	h.eventually("third", func() bool { return h.Status()[0].Generation == 3 })
}

// w05: files that are saved together are one reload.
func TestW05_FilesSavedTogetherAreOneReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Quiet, o.Clock = true, time.Hour, time.Second, clock.System{} }, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a0.yaml": semaphore("a0", 1)})
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation == 1 })
	files := map[string]string{}
	for i := range 11 {
		files[fmt.Sprintf("new/b%d.yaml", i)] = semaphore(fmt.Sprintf("b%d", i), 1)
	}
	write(t, h.dir, files)
	h.eventually("second", func() bool { return h.Status()[0].Generation == 2 })
	require.Len(t, h.inForce(), 12)
	require.Equal(t, 2, h.counts()[Applied])
}

// w06: lost events are counted, and everything is looked at again.
func TestW06_LostEventsForceARescan(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	h.look(Poll)
	write(t, h.dir, map[string]string{"b.yaml": semaphore("b", 1)})
	h.projects[0].hint(hintOverflow)
	require.Zero(t, h.due())
	h.clock.Advance(DefaultQuiet)
	require.Equal(t, Hint, h.due())
	require.Equal(t, Applied, h.look(Hint).Result)
	h.inSync("a", "b")
	require.Contains(t, scrape(h.metrics), `nf_watch_overflow_total{project="p"} 1`)
}

// w08: a writer that truncates, waits and writes is never seen half-way.
func TestW08_AnEmptyFileBetweenIsNotSeen(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Quiet, o.Clock = true, time.Hour, time.Second, clock.System{} }, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation == 1 })
	f, err := os.Create(filepath.Join(h.dir, "a.yaml"))
	require.NoError(t, err)
	pause := time.NewTimer(50 * time.Millisecond)
	<-pause.C
	_, err = f.WriteString(semaphore("a", 2))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	h.eventually("second", func() bool { return h.Status()[0].Generation == 2 })
	require.Zero(t, h.counts()[Failed])
}

// w11, P9: an empty root; a file appears and is loaded; it goes and is retired, once two reads 5 s apart agree.
func TestW11_FilesThatComeAndGo(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile + "spec: {roots: [one, two]}\n", "one/a.yaml": semaphore("a", 1)})
	require.NoError(t, os.Mkdir(filepath.Join(h.dir, "two"), 0o755))
	require.Equal(t, Applied, h.look(Poll).Result)
	write(t, h.dir, map[string]string{"two/b.yaml": semaphore("b", 1)})
	require.Equal(t, Applied, h.look(Poll).Result)
	h.inSync("a", "b")

	require.NoError(t, os.Remove(filepath.Join(h.dir, "two/b.yaml")))
	require.Equal(t, Pending, h.look(Poll).Result)
	require.Equal(t, StatePending, h.state())
	require.Equal(t, 1, h.Status()[0].Plan.Delete)
	require.Equal(t, []string{"a", "b"}, h.inForce())
	h.clock.Advance(4 * time.Second)
	require.Zero(t, h.due())
	require.Equal(t, Pending, h.look(Asked).Result, "too early, whoever asks")
	h.clock.Advance(time.Second)
	require.Equal(t, Confirm, h.due())
	require.Equal(t, Applied, h.look(Confirm).Result)
	h.inSync("a")
}

// P9: a file that is back at the second read was never gone.
func TestAFileThatReturnsIsNotRetired(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1), "b.yaml": semaphore("b", 1)})
	h.look(Poll)
	require.NoError(t, os.Remove(filepath.Join(h.dir, "b.yaml")))
	require.Equal(t, Pending, h.look(Poll).Result)
	write(t, h.dir, map[string]string{"b.yaml": semaphore("b", 1)})
	h.clock.Advance(5 * time.Second)
	require.Equal(t, Unchanged, h.look(Confirm).Result)
	h.inSync("a", "b")
}

// w15, 59: a root that is not there yet, and one that goes and returns.
func TestW15_ARootThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "volume", "flows")
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Clock = true, time.Hour, clock.System{} }, dir)
	h.run()
	h.eventually("waiting", func() bool {
		return h.state() == StateWaiting && strings.Contains(h.Status()[0].Reason, "waiting for root")
	})
	write(t, filepath.Dir(dir), map[string]string{"tmp/nf.yaml": projectFile, "tmp/a.yaml": semaphore("a", 1)})
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(dir), "tmp"), dir))
	h.eventually("loaded", func() bool { return h.state() == OK })
	h.inSync("a")
	require.NoError(t, os.Rename(dir, dir+".away"))
	h.eventually("gone", func() bool { return h.state() == StateWaiting })
	require.Equal(t, []string{"a"}, h.inForce())
	require.NoError(t, os.Rename(dir+".away", dir))
	h.eventually("back", func() bool { return h.state() == OK })
	write(t, dir, map[string]string{"b.yaml": semaphore("b", 1)})
	h.eventually("watched again", func() bool { return h.Status()[0].Generation == 2 })
}

// w17: every input that is read counts, a proto file and nf.yaml too; a comment is loaded and changes nothing.
func TestW17_EveryInputCounts(t *testing.T) {
	t.Parallel()
	proto := func(field string) string {
		return "syntax = \"proto3\";\npackage demo;\nservice Greeter { rpc Hello(Ask) returns (Ask); }\nmessage Ask { string " + field + " = 1; }\n"
	}
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{
		"nf.yaml":     projectFile,
		"a.yaml":      "apiVersion: nf/v1\nkind: Target\nmetadata: {name: t}\nspec: {grpc: {address: \"localhost:1\", service: demo.Greeter, protoFiles: [api/g.proto]}}\n",
		"api/g.proto": proto("name"),
	})
	v := h.look(Poll)
	require.Equal(t, Applied, v.Result, v.Reason)
	digest := h.Status()[0].Attempted.Digest
	write(t, h.dir, map[string]string{"api/g.proto": proto("other")})
	require.Equal(t, Applied, h.look(Poll).Result)
	require.NotEqual(t, digest, h.Status()[0].Attempted.Digest)
	digest = h.Status()[0].Attempted.Digest
	write(t, h.dir, map[string]string{"api/g.proto": proto("other") + "// a comment\n"})
	require.Equal(t, Unchanged, h.look(Poll).Result)
	require.NotEqual(t, digest, h.Status()[0].Attempted.Digest)
	digest = h.Status()[0].Attempted.Digest
	write(t, h.dir, map[string]string{"nf.yaml": projectFile + "# a comment\n"})
	require.Equal(t, Unchanged, h.look(Poll).Result)
	require.NotEqual(t, digest, h.Status()[0].Attempted.Digest)
}

// w18: without a watcher, a poll finds it within the interval.
func TestW18_APollFindsWhatNobodySaw(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	h.look(Poll)
	write(t, h.dir, map[string]string{"b.yaml": semaphore("b", 1)})
	h.clock.Advance(DefaultPoll * 9 / 10)
	require.Zero(t, h.due())
	h.clock.Advance(DefaultPoll / 5)
	require.Equal(t, Poll, h.due())
	require.Equal(t, Applied, h.look(Poll).Result)
	h.inSync("a", "b")
}

// w23: what is broken now does not hold up what mends it.
func TestW23_TheNewestRevisionIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Watch, o.Poll, o.Clock = true, time.Hour, clock.System{} }, "")
	git(t, h.dir, "init", "-q", "-b", "main")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	commit(t, h.dir)
	h.run()
	h.eventually("first", func() bool { return h.state() == OK })
	write(t, h.dir, map[string]string{"a.yaml": "broken"})
	commit(t, h.dir)
	h.eventually("broken", func() bool { return h.state() == StateFailed })
	write(t, h.dir, map[string]string{"a.yaml": semaphore("a", 2)})
	fixed := commit(t, h.dir)
	h.eventually("fixed", func() bool { return h.state() == OK && h.Status()[0].Generation == 2 })
	require.Equal(t, fixed, h.Status()[0].Attempted.Commit)
}

// p06: a root that becomes a loop of links is an error of the load: nothing is retired.
func TestP06_ALoopOfLinksRetiresNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile + "spec: {roots: [one, two]}\n", "one/a.yaml": semaphore("a", 1), "two/b.yaml": semaphore("b", 1)})
	require.Equal(t, Applied, h.look(Poll).Result)
	require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "two")))
	require.NoError(t, os.Symlink("two", filepath.Join(h.dir, "two")))
	for range 3 {
		h.clock.Advance(10 * time.Second)
		require.Equal(t, Failed, h.look(Asked).Result)
	}
	require.Equal(t, []string{"a", "b"}, h.inForce())
	require.NoError(t, os.Remove(filepath.Join(h.dir, "two")))
	require.Equal(t, Failed, h.look(Asked).Result, "a root that is gone is no empty root")
	write(t, h.dir, map[string]string{"two/b.yaml": semaphore("b", 1)})
	require.Equal(t, Unchanged, h.look(Asked).Result)
	h.inSync("a", "b")
}

// o04: a database that fails in the middle of an apply is tried again, with back-off; a success forgets the failures.
func TestO04_ATransientErrorIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	storetest.Exec(t, h.url, "ALTER TABLE nf_change RENAME TO nf_change_away")
	waits := []time.Duration{}
	for range 3 {
		require.Equal(t, Errored, h.look(Retry).Result)
		_, wait := h.projects[0].due()
		waits = append(waits, wait)
		h.clock.Advance(wait)
		require.Equal(t, Retry, h.due())
	}
	require.Less(t, waits[0], waits[1])
	require.Less(t, waits[1], waits[2])
	storetest.Exec(t, h.url, "ALTER TABLE nf_change_away RENAME TO nf_change")
	require.Equal(t, Applied, h.look(Retry).Result)
	h.inSync("a")
	require.Zero(t, h.projects[0].fails)

	// files that are in force are not said to be broken because the database is away
	storetest.Exec(t, h.url, "ALTER TABLE nf_project RENAME TO nf_project_away")
	require.Equal(t, Errored, h.look(Poll).Result)
	require.Equal(t, OK, h.state())
	storetest.Exec(t, h.url, "ALTER TABLE nf_project_away RENAME TO nf_project")
	require.Equal(t, Unchanged, h.look(Retry).Result)
	h.inSync("a")
}

// p18: a checkout that flips between commits while the loop runs: every set that is applied is that of one commit, nothing is retired by mistake.
func TestP18_CheckoutsWhileTheLoopRuns(t *testing.T) {
	t.Parallel()
	flip(t, 200, 6)
}

// flip switches a checkout of n files between two commits.
func flip(t *testing.T, n, times int) {
	t.Helper()
	h := newHost(t, func(o *Options) {
		o.Watch, o.Poll, o.Quiet, o.Clock = true, 50*time.Millisecond, time.Millisecond, clock.System{}
	}, "")
	git(t, h.dir, "init", "-q", "-b", "one")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile})
	for _, version := range []int{1, 2} {
		for i := range n {
			write(t, h.dir, map[string]string{fmt.Sprintf("d%d/s%d.yaml", i%17, i): semaphore(fmt.Sprintf("s%d", i), version)})
		}
		commit(t, h.dir)
		if version == 1 {
			git(t, h.dir, "checkout", "-q", "-b", "two")
		}
	}
	var mixed []string
	h.applier.Plan = func(ctx context.Context, in Loaded) (plan.Plan, plan.Input, error) {
		permits := map[int64]int{}
		for _, o := range in.Bundle.Set.All() {
			permits[o.(*schema.Semaphore).Permits]++
		}
		if len(permits) != 1 || in.Bundle.Set.Len() != n {
			mixed = append(mixed, fmt.Sprint(permits))
		}
		return planOn(h.store)(ctx, in)
	}
	h.run()
	h.eventually("first", func() bool { return h.Status()[0].Generation > 0 })
	last := ""
	for i := range times {
		last = []string{"one", "two"}[i%2]
		git(t, h.dir, "checkout", "-q", last)
	}
	want := git(t, h.dir, "rev-parse", "HEAD")
	h.eventually("the last one", func() bool { s := h.Status()[0]; return s.Attempted.Commit == want && s.Result != Busy })
	require.Zero(t, h.counts()[Failed], "%+v", h.news)
	require.Empty(t, mixed)
	require.Equal(t, want, h.Status()[0].Commit, "the newest commit is in force: two contains one")
	require.Len(t, h.inForce(), n)
	require.Zero(t, storetest.Int(t, h.url, "SELECT count(*) FROM nf_change WHERE action = 'retire'"))
}

// P16, NF7004: two projects on one runner; a broken one holds up no other; they may not share files or a name.
func TestP16_SeveralProjectsOnOneRunner(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	named := func(name string) string { return strings.Replace(projectFile, "{name: p}", "{name: "+name+"}", 1) }
	write(t, base, map[string]string{
		"one/nf.yaml": named("one"), "one/a.yaml": "broken", "two/nf.yaml": named("two"), "two/b.yaml": semaphore("b", 1),
		"three/nf.yaml": named("two"), "three/c.yaml": semaphore("c", 1),
	})
	h := newHost(t, nil, filepath.Join(base, "one"), filepath.Join(base, "two"), filepath.Join(base, "three"))
	verdicts := h.Look(t.Context())
	require.Equal(t, Failed, verdicts[0].Result)
	require.Equal(t, Applied, verdicts[1].Result)
	require.Equal(t, Failed, verdicts[2].Result)
	require.EqualValues(t, "NF7004", verdicts[2].Findings[0].Code)
	require.Equal(t, []string{"b"}, h.inForce())
	write(t, base, map[string]string{"one/a.yaml": semaphore("a", 1), "three/nf.yaml": named("three")})
	for _, v := range h.Look(t.Context()) {
		require.True(t, v.OK(), v)
	}
	require.Equal(t, []string{"a", "b", "c"}, h.inForce())
}

func TestOverlappingRootsAreRefused(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write(t, base, map[string]string{
		"nf.yaml": strings.Replace(projectFile, "name: p", "name: outer", 1) + "spec: {roots: [shared, own]}\n", "own/a.yaml": semaphore("a", 1),
		"shared/b.yaml": semaphore("b", 1), "shared/.nf": "",
	})
	inner := t.TempDir()
	require.NoError(t, os.RemoveAll(inner))
	require.NoError(t, os.Symlink(filepath.Join(base, "shared"), inner))
	h := newHost(t, nil, base, inner)
	require.Equal(t, Applied, h.Look(t.Context())[0].Result)
	write(t, base, map[string]string{"shared/nf.yaml": strings.Replace(projectFile, "name: p", "name: inner", 1), ".nfignore": "shared/nf.yaml\n"})
	verdicts := h.Look(t.Context())
	require.Equal(t, Unchanged, verdicts[0].Result, verdicts[0].Reason)
	require.Equal(t, Failed, verdicts[1].Result)
	require.Contains(t, verdicts[1].Reason, "roots overlap with those of project outer")
}

// --apply manual: the plan is shown and nothing is written.
func TestManualShowsThePlan(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	h.applier.Terms.Manual = true
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	require.Equal(t, Pending, h.look(Poll).Result)
	require.Equal(t, StatePending, h.state())
	require.Equal(t, 1, h.Status()[0].Plan.Add)
	require.Empty(t, h.inForce())
}

// C10 step 2: a busy source is waited for, and told after a minute.
func TestABusySourceIsToldAfterAMinute(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *Options) { o.Mode = snapshot.Files }, "")
	git(t, h.dir, "init", "-q", "-b", "main")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	require.Equal(t, Applied, h.look(Poll).Result)
	lock := filepath.Join(h.dir, ".git/index.lock")
	write(t, h.dir, map[string]string{".git/index.lock": "", "a.yaml": "half"})
	require.Equal(t, Busy, h.look(Hint).Result)
	require.Equal(t, OK, h.state())
	h.clock.Advance(59 * time.Second)
	require.Equal(t, Busy, h.look(Retry).Result)
	require.Equal(t, OK, h.state())
	h.clock.Advance(time.Second)
	require.Equal(t, Busy, h.look(Retry).Result)
	require.Equal(t, StateBusy, h.state())
	require.Contains(t, h.Status()[0].Reason, "NF7005 source busy")
	require.Equal(t, 1, h.counts()[Busy])
	write(t, h.dir, map[string]string{"a.yaml": semaphore("a", 2)})
	require.NoError(t, os.Remove(lock))
	require.Equal(t, Applied, h.look(Hint).Result)
	h.inSync("a")
}

// P11: a .git that git cannot read is an error, never a reason to read the files.
func TestABrokenCheckoutIsNotReadAsFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil, "")
	write(t, h.dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1), ".git/HEAD": "rubbish"})
	v := h.look(Poll)
	require.Equal(t, Failed, v.Result)
	require.Contains(t, v.Reason, "git")
	require.Empty(t, h.inForce())
}

// 65: several replicas, one generation; the others find it done.
func TestSeveralReplicasApplyOnce(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	var hosts []*host
	for range 3 {
		hosts = append(hosts, hostOn(t, url, nil, dir))
	}
	for round := range 3 {
		write(t, dir, map[string]string{"a.yaml": semaphore("a", 10+round)})
		results := make([]Verdict, len(hosts))
		var all sync.WaitGroup
		for i, h := range hosts {
			all.Go(func() { results[i] = h.projects[0].look(t.Context(), Asked) })
		}
		all.Wait()
		applied := 0
		for _, v := range results {
			require.True(t, v.OK(), v)
			require.EqualValues(t, round+1, v.Generation)
			if v.Result == Applied {
				applied++
			}
		}
		require.Equal(t, 1, applied)
	}
}

// P11, 65: replicas at different commits never take turns; the one that is older says so, and catches up.
func TestReplicasAtDifferentCommitsDoNotFlap(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	old, young := t.TempDir(), filepath.Join(t.TempDir(), "clone")
	git(t, old, "init", "-q", "-b", "main")
	write(t, old, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", 1)})
	commit(t, old)
	git(t, old, "clone", "-q", old, young)
	write(t, young, map[string]string{"a.yaml": semaphore("a", 2)})
	newest := commit(t, young)
	a, b := hostOn(t, url, nil, old), hostOn(t, url, nil, young)
	require.Equal(t, Applied, a.look(Poll).Result)
	require.Equal(t, Applied, b.look(Poll).Result)
	for range 3 {
		v := a.look(Notice)
		require.Equal(t, Behind, v.Result)
		require.EqualValues(t, 2, v.Generation)
		require.Contains(t, v.Reason, "NF6107")
		require.Equal(t, Unchanged, b.look(Notice).Result)
	}
	require.Equal(t, StateBehind, a.state())
	require.Equal(t, 1, a.counts()[Behind])
	git(t, old, "pull", "-q", young, "main")
	require.Equal(t, newest, git(t, old, "rev-parse", "HEAD"))
	require.Equal(t, Unchanged, a.look(Poll).Result)
	a.inSync("a")
}

// P11 without commits: a content that was replaced comes back only where a process saw its own source change to it from what is in force.
func TestReplicasWithoutCommitsDoNotFlap(t *testing.T) {
	t.Parallel()
	url := storetest.URL(t)
	one, two := t.TempDir(), t.TempDir()
	mount := func(dir string, permits int) {
		write(t, dir, map[string]string{"nf.yaml": projectFile, "a.yaml": semaphore("a", permits)})
	}
	mount(one, 1)
	mount(two, 1)
	a, b := hostOn(t, url, nil, one), hostOn(t, url, nil, two)
	require.Equal(t, Applied, a.look(Poll).Result)
	require.Equal(t, Unchanged, b.look(Poll).Result)
	mount(two, 2) // rolled out here first
	require.Equal(t, Applied, b.look(Hint).Result)
	for range 3 {
		require.Equal(t, Behind, a.look(Notice).Result)
		require.Equal(t, Unchanged, b.look(Notice).Result)
	}
	mount(one, 2)
	require.Equal(t, Unchanged, a.look(Hint).Result)
	mount(one, 1) // rolled back there first
	require.Equal(t, Applied, a.look(Hint).Result)
	for range 3 {
		require.Equal(t, Behind, b.look(Notice).Result)
		require.Equal(t, Unchanged, a.look(Notice).Result)
	}
	mount(two, 1)
	require.Equal(t, Unchanged, b.look(Hint).Result)
	require.EqualValues(t, 3, b.Status()[0].Generation)
	// one that starts with the replaced content saw nothing change
	mount(two, 2)
	late := hostOn(t, url, nil, two)
	require.Equal(t, Behind, late.look(Poll).Result)
}
