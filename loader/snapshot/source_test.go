package snapshot

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// aged makes every file below dir look old, so that its time stamp counts.
func aged(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(path, old, old)
	}))
}

func source(dir string, mode Mode) *Source { return NewSource(dir, mode, lines, time.Now) }

// Whatever happens to a folder, a warm source reads what a cold one does, and Unmoved says true only where both reads are equal.
func TestSourceReadsWarmAsCold(t *testing.T) { //nolint:tparallel // each step follows the one before
	t.Parallel()
	dir := t.TempDir()
	files(t, dir, map[string]string{"nf.yaml": "m n", "m/a.yaml": "one", "m/b.yaml": "use: p/x.proto", "n/c.yaml": "three"})
	aged(t, dir)
	s := source(dir, Files)
	before, err := s.Read(t.Context())
	require.NoError(t, err)
	require.True(t, s.Unmoved())
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"same size, old time stamp", func() error { files(t, dir, map[string]string{"m/a.yaml": "two"}); aged(t, dir); return nil }},
		{"longer", func() error { files(t, dir, map[string]string{"m/a.yaml": "twelve"}); return nil }},
		{"same size, at once", func() error { files(t, dir, map[string]string{"m/a.yaml": "eleven"}); return nil }},
		{"a named file appears", func() error { files(t, dir, map[string]string{"p/x.proto": "syntax"}); return nil }},
		{"an ignore file appears", func() error { files(t, dir, map[string]string{".nfignore": "c.yaml"}); return nil }},
		{"and goes", func() error { return os.Remove(filepath.Join(dir, ".nfignore")) }},
		{"a file goes", func() error { return os.Remove(filepath.Join(dir, "m/a.yaml")) }},
		{"a new folder", func() error { files(t, dir, map[string]string{"n/deep/er/d.yaml": "four"}); return nil }},
		{"a root goes", func() error { return os.RemoveAll(filepath.Join(dir, "n")) }},
		{"and returns", func() error { files(t, dir, map[string]string{"n/c.yaml": "three"}); return nil }},
		{"a replaced file", func() error {
			files(t, dir, map[string]string{"m/tmp": "thre3"})
			return os.Rename(filepath.Join(dir, "m/tmp"), filepath.Join(dir, "n/c.yaml"))
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			require.NoError(t, step.do())
			require.False(t, s.Unmoved())
			warm, err := s.Read(t.Context())
			require.NoError(t, err)
			cold, err := source(dir, Files).Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, cold, warm)
			require.NotEqual(t, before.Digest, warm.Digest)
			before = warm
		})
	}
}

func TestSourceOfCommits(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one", "b.yaml": "two"})
	first := r.commit("first")
	s := source(r.dir, Auto)
	look, err := s.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, Look{Commit: first}, look)
	snap, err := s.Read(t.Context())
	require.NoError(t, err)
	require.False(t, s.Unmoved(), "a commit is told by its hash")

	files(t, r.dir, map[string]string{"b.yaml": "three"})
	changed, err := s.Changed(t.Context(), snap)
	require.NoError(t, err)
	require.Equal(t, []string{"b.yaml"}, changed)
	second := r.commit("second")
	warm, err := s.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, second, warm.Commit)
	cold, err := source(r.dir, Git).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, cold, warm)

	// its files are another thing
	snap, err = source(r.dir, Files).Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, snap.Commit)
	require.Equal(t, warm.Digest, snap.Digest)
}

// w15, C10 step 2: what is not there yet, and what git is changing.
func TestSourceLooksBeforeItReads(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later", "still")
	s := source(dir, Auto)
	look := func() Look {
		t.Helper()
		l, err := s.Look(t.Context())
		require.NoError(t, err)
		return l
	}
	require.True(t, look().Missing)
	require.Contains(t, s.Places(), filepath.Dir(filepath.Dir(dir)), "it will appear there")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.True(t, look().Missing, "a mount point without its volume")
	files(t, dir, map[string]string{"nf.yaml": ""})
	require.Equal(t, Look{}, look())

	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one"})
	r.commit("first")
	s = source(r.dir, Files)
	require.Equal(t, Look{}, look())
	for _, sign := range []string{"index.lock", "MERGE_HEAD", "rebase-merge", "rebase-apply"} {
		path := filepath.Join(r.dir, ".git", sign)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.Contains(t, look().Busy, path)
		require.Contains(t, s.Places(), filepath.Dir(path), "its end is seen")
		require.NoError(t, os.Remove(path))
	}
	s = source(r.dir, Auto)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, ".git", "index.lock"), nil, 0o600))
	require.Empty(t, look().Busy, "blobs can be read at any time")
}

// The places where a swap is seen: the parent of each link on the way, not what it leads to.
func TestPlacesFollowTheChainOfLinks(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	files(t, base, map[string]string{
		"store/v1/nf.yaml": "", "store/v1/a.yaml": "x", "store/current": "-> v1", "mnt/app": "-> " + filepath.Join(base, "store/current"),
		"store/v1/sub/b.yaml": "y", "store/v1/linked": "-> sub",
	})
	s := source(filepath.Join(base, "mnt/app"), Auto)
	_, err = s.Read(t.Context())
	require.NoError(t, err)
	for _, place := range []string{"mnt", "store", "store/v1", "store/v1/sub"} {
		require.Contains(t, s.Places(), filepath.Join(base, place))
	}

	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": ""})
	r.commit("first")
	r.git("checkout", "-q", "-b", "team/feature")
	r.git("worktree", "add", "-q", filepath.Join(base, "linked"), "main")
	require.Contains(t, source(r.dir, Auto).Places(), filepath.Join(r.dir, ".git/refs/heads/team"))
	linked := source(filepath.Join(base, "linked"), Auto).Places()
	require.Contains(t, linked, filepath.Join(r.dir, ".git/worktrees/linked"))
	require.Contains(t, linked, filepath.Join(r.dir, ".git/refs/heads"))
}
