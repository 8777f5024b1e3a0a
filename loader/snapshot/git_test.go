package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// repo is a git repository for a test.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	r := &repo{t, dir}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{
		"-C", r.dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false",
		"-c", "protocol.file.allow=always",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_COMMITTER_DATE=1700000000 +0100")
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, string(out))
	return strings.TrimSpace(string(out))
}

func (r *repo) commit(message string) string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
	return r.git("rev-parse", "HEAD")
}

func (r *repo) read(dir string) (Snapshot, error) {
	r.t.Helper()
	return ReadGit(r.t.Context(), filepath.Join(r.dir, dir), lines)
}

func TestReadGit(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"flows/nf.yaml": "", "flows/a.yaml": "one", "flows/a b\té\n.yaml": "odd", "other/nf.yaml": "", "other/x.yaml": ""})
	first := r.commit("first")
	files(t, r.dir, map[string]string{"flows/b.yaml": "two"})
	second := r.commit("second")

	s, err := r.read("flows")
	require.NoError(t, err)
	require.Equal(t, []string{"a b\té\n.yaml", "a.yaml", "b.yaml"}, paths(s))
	require.Equal(t, second, s.Commit)
	require.Equal(t, "main", s.Branch)
	require.Equal(t, []string{first}, s.Parents)
	require.Equal(t, time.Unix(1700000000, 0).UTC(), s.CommittedAt)
	require.False(t, s.Dirty)

	s, err = ReadGitAt(t.Context(), filepath.Join(r.dir, "flows"), "HEAD~1", lines)
	require.NoError(t, err)
	require.Equal(t, []string{"a b\té\n.yaml", "a.yaml"}, paths(s))
	require.Equal(t, first, s.Commit)
	require.Empty(t, s.Branch)

	r.git("checkout", "-q", "--detach")
	s, err = r.read("flows")
	require.NoError(t, err)
	require.Empty(t, s.Branch)
}

// TestFolderAndCommitGiveOneDigest holds both ways of reading to the same answer.
func TestFolderAndCommitGiveOneDigest(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "use: p/x.proto", "p/x.proto": "x", ".nfignore": "b*"})
	r.commit("all")
	s, err := r.read("")
	require.NoError(t, err)
	f, err := ReadDir(r.dir, lines)
	require.NoError(t, err)
	require.Equal(t, f.Digest, s.Digest)
	require.Equal(t, f.Files, s.Files)
}

func TestDirty(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(r *repo)
		want   []string
	}{
		"nothing":         {func(*repo) {}, nil},
		"changed":         {func(r *repo) { files(r.t, r.dir, map[string]string{"f/a.yaml": "changed"}) }, []string{"a.yaml"}},
		"same size":       {func(r *repo) { files(r.t, r.dir, map[string]string{"f/a.yaml": "eno"}) }, []string{"a.yaml"}},
		"staged":          {func(r *repo) { files(r.t, r.dir, map[string]string{"f/a.yaml": "changed"}); r.git("add", "-A") }, []string{"a.yaml"}},
		"touched":         {func(r *repo) { r.touch("f/a.yaml") }, nil},
		"line ends":       {func(r *repo) { files(r.t, r.dir, map[string]string{"f/lines.yaml": "a: 1\r\nb: 2\r\n"}) }, nil},
		"deleted":         {func(r *repo) { require.NoError(r.t, os.Remove(filepath.Join(r.dir, "f/a.yaml"))) }, []string{"a.yaml"}},
		"new":             {func(r *repo) { files(r.t, r.dir, map[string]string{"f/new.yaml": ""}) }, []string{"new.yaml"}},
		"new in a folder": {func(r *repo) { files(r.t, r.dir, map[string]string{"f/x/new.yaml": ""}) }, []string{"x/new.yaml"}},
		"ignored by git":  {func(r *repo) { files(r.t, r.dir, map[string]string{"f/x.local.yaml": ""}) }, nil},
		"ignored by nf":   {func(r *repo) { files(r.t, r.dir, map[string]string{"f/out/x.yaml": "", "f/_x.yaml": ""}) }, nil},
		"no manifest":     {func(r *repo) { files(r.t, r.dir, map[string]string{"f/notes.txt": "", "f/code.go": "x"}) }, nil},
		"another project": {func(r *repo) { files(r.t, r.dir, map[string]string{"g/new.yaml": "", "g/nf.yaml": "x"}) }, nil},
		"nf.yaml":         {func(r *repo) { files(r.t, r.dir, map[string]string{"f/nf.yaml": "."}) }, []string{"nf.yaml"}},
		"became a link": {func(r *repo) {
			require.NoError(r.t, os.Remove(filepath.Join(r.dir, "f/a.yaml")))
			files(r.t, r.dir, map[string]string{"f/a.yaml": "-> lines.yaml"})
		}, []string{"a.yaml"}},
		"named file": {func(r *repo) { files(r.t, r.dir, map[string]string{"f/x.proto": "y"}) }, []string{"x.proto"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			files(t, r.dir, map[string]string{
				"f/nf.yaml": "", "f/a.yaml": "one", "f/lines.yaml": "a: 1\nb: 2\n", "f/.nfignore": "out/", ".gitignore": "*.local.yaml", "f/code.go": "", "f/x.proto": "",
				"f/use.yaml": "use: x.proto", "g/nf.yaml": "",
			})
			r.commit("all")
			c.change(r)
			s, err := r.read("f")
			require.NoError(t, err)
			require.Equal(t, c.want, s.Changed)
			require.Equal(t, len(c.want) > 0, s.Dirty)
			a, _ := s.File("a.yaml")
			require.Equal(t, "one", string(a), "the commit is what counts")
		})
	}
}

func (r *repo) touch(name string) {
	at := time.Unix(1_600_000_000, 0)
	require.NoError(r.t, os.Chtimes(filepath.Join(r.dir, name), at, at))
}

// TestGitFaults: a checkout that cannot be read is an error that names what mends it, never a reason to read files.
func TestGitFaults(t *testing.T) {
	t.Parallel()
	fault := func(t *testing.T, dir string) *GitError {
		t.Helper()
		_, err := ReadGit(t.Context(), dir, lines)
		var g *GitError
		require.ErrorAs(t, err, &g)
		require.NotEmpty(t, g.Mend)
		return g
	}
	t.Run("no checkout", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		_, _, found, err := InGit(dir)
		require.NoError(t, err)
		require.False(t, found)
		require.Contains(t, fault(t, dir).Mend, "git init")
	})
	t.Run("unborn HEAD", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		require.Contains(t, fault(t, r.dir).Error(), "no commit; run: git -C "+r.dir+" add -A")
	})
	t.Run("empty .git", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		files(t, dir, map[string]string{"nf.yaml": "", ".git/x": ""})
		require.Contains(t, fault(t, dir).What, "cannot read")
	})
	t.Run("empty .git below another checkout", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		r.commit("outer")
		files(t, r.dir, map[string]string{"in/nf.yaml": "", "in/.git/x": ""})
		require.Contains(t, fault(t, filepath.Join(r.dir, "in")).What, "cannot read")
	})
	t.Run(".git is garbage", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		files(t, dir, map[string]string{"nf.yaml": "", ".git": "garbage"})
		require.NotEmpty(t, fault(t, dir).What)
	})
	t.Run(".git is a link", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		r.commit("x")
		dir := t.TempDir()
		files(t, dir, map[string]string{"nf.yaml": "", ".git": "-> " + filepath.Join(r.dir, ".git")})
		require.Contains(t, fault(t, dir).What, "neither a folder nor a file")
	})
	t.Run("project is not committed", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"a.yaml": ""})
		r.commit("x")
		files(t, r.dir, map[string]string{"my flows/nf.yaml": ""})
		require.Equal(t, "run: git -C "+r.dir+" add 'my flows' && git -C "+r.dir+" commit", fault(t, filepath.Join(r.dir, "my flows")).Mend)
	})
	t.Run("HEAD names a lost commit", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		r.commit("x")
		files(t, r.dir, map[string]string{".git/refs/heads/main": strings.Repeat("a", 40)})
		require.NotEmpty(t, fault(t, r.dir).What)
	})
	t.Run("lost blob", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "text"})
		r.commit("x")
		hash := r.git("rev-parse", "HEAD:a.yaml")
		require.NoError(t, os.Remove(filepath.Join(r.dir, ".git/objects", hash[:2], hash[2:])))
		require.Contains(t, fault(t, r.dir).Error(), hash)
	})
	t.Run("unknown revision", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		r.commit("x")
		_, err := ReadGitAt(t.Context(), r.dir, "nothing", lines)
		require.ErrorContains(t, err, `revision "nothing" is not known`)
	})
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, map[string]string{"nf.yaml": ""})
		r.commit("x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ReadGit(ctx, r.dir, lines)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestWorktreeAndSubmodule(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": ""})
	r.commit("x")
	tree := filepath.Join(t.TempDir(), "tree")
	r.git("worktree", "add", "-q", tree)
	tree, err := filepath.EvalSymlinks(tree)
	require.NoError(t, err)
	s, err := ReadGit(t.Context(), tree, lines)
	require.NoError(t, err)
	require.Equal(t, []string{"a.yaml"}, paths(s))
	require.Equal(t, "tree", s.Branch)

	sub := newRepo(t)
	files(t, sub.dir, map[string]string{"x.yaml": ""})
	sub.commit("sub")
	r.git("submodule", "--quiet", "add", sub.dir, "lib")
	r.commit("with a submodule")
	s, err = r.read("")
	require.NoError(t, err)
	require.Equal(t, []string{"NF7002 lib"}, codes(s))
	files(t, r.dir, map[string]string{".nfignore": "lib/"})
	r.commit("ignored")
	s, err = r.read("")
	require.NoError(t, err)
	require.Empty(t, s.Findings)
}
