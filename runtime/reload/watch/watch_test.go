package watch

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened gives a watcher of folders.
func opened(t *testing.T, folders ...string) *Watcher {
	t.Helper()
	w, err := Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	set(t, w, folders...)
	return w
}

func set(t *testing.T, w *Watcher, folders ...string) bool {
	t.Helper()
	fresh, err := w.Set(folders)
	require.NoError(t, err)
	return fresh
}

// hinted waits for a hint. The time is a bound for a broken watcher, nothing is awaited that long.
func hinted(t *testing.T, w *Watcher) {
	t.Helper()
	select {
	case <-w.Hints():
	case <-time.After(20 * time.Second):
		require.Fail(t, "no hint")
	}
}

// calm takes what is left of the events before.
func calm(t *testing.T, w *Watcher, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "calm"), nil, 0o600))
	hinted(t, w)
	for {
		select {
		case <-w.Hints():
			continue
		case <-time.After(50 * time.Millisecond):
		}
		return
	}
}

// w03: a swap may arrive as any kind of event; every kind is a hint.
func TestW03_EveryKindOfEventIsAHint(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, path string){
		"create": func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.WriteFile(path+"2", nil, 0o600)) },
		"write": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		},
		"remove": func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Remove(path)) },
		"rename": func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Rename(path, path+"2")) },
		"chmod":  func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Chmod(path, 0o644)) },
		"link":   func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Symlink("b", path+"2")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			w := opened(t, dir)
			change(t, path)
			hinted(t, w)
		})
	}
}

// w06: lost events are told as such, and a hint that waits does not swallow the news.
func TestW06_OverflowIsAHintThatSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Watcher{hints: make(chan Hint, 1)}
		events, errs := make(chan fsnotify.Event), make(chan error)
		w.done.Go(func() { w.listen(events, errs) })
		errs <- fsnotify.ErrEventOverflow
		synctest.Wait()
		events <- fsnotify.Event{Name: "x", Op: fsnotify.Write}
		synctest.Wait()
		require.Equal(t, Hint{Overflow: true}, <-w.Hints())
		require.Empty(t, w.Hints())
		close(events)
		w.done.Wait()
	})
}

// A folder that was replaced by another one of the same name is watched again by the next Set, whichever way it went.
func TestAReplacedFolderIsWatchedAgain(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { t.Helper(); require.NoError(t, os.RemoveAll(dir)) },
		"renamed": func(t *testing.T, dir string) { t.Helper(); require.NoError(t, os.Rename(dir, dir+".old")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := filepath.Join(parent, "in")
			require.NoError(t, os.Mkdir(dir, 0o755))
			w := opened(t, parent, dir)
			replace(t, dir)
			require.False(t, set(t, w, parent, dir))
			require.Equal(t, 1, w.Count(), "what is gone is left out")
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.True(t, set(t, w, parent, dir))
			require.Equal(t, 2, w.Count())
			calm(t, w, parent)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
			hinted(t, w)
		})
	}
}

func TestSetDropsWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	w := opened(t, a, b)
	require.False(t, set(t, w, a))
	calm(t, w, a)
	require.NoError(t, os.WriteFile(filepath.Join(b, "x"), nil, 0o600))
	calm(t, w, a)
	require.Equal(t, 1, w.Count())
}
