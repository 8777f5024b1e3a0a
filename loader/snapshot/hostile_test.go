package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trap gives a command that a hostile configuration wants to be run, and a check that it never was.
func trap(t *testing.T) (command string, sprung func() bool) {
	t.Helper()
	dir := t.TempDir()
	mark := filepath.Join(dir, "sprung")
	command = filepath.Join(dir, "trap.sh")
	require.NoError(t, os.WriteFile(command, []byte("#!/bin/sh\ntouch "+mark+"\ncat >/dev/null 2>&1\n"), 0o700))
	return command, func() bool {
		_, err := os.Lstat(mark)
		return err == nil
	}
}

// TestHostileConfiguration: whatever the configuration of a checkout would run, reading it runs nothing.
func TestHostileConfiguration(t *testing.T) {
	t.Parallel()
	command, sprung := trap(t)
	r := newRepo(t)
	files(t, r.dir, map[string]string{
		"nf.yaml": "", "a.yaml": "one", "b.yaml": "two", ".gitattributes": "*.yaml filter=evil diff=evil\n",
	})
	r.commit("x")
	for _, setting := range []string{
		"core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.alternateRefsCommand", "filter.evil.clean", "filter.evil.smudge",
		"filter.evil.process", "diff.evil.command", "diff.evil.textconv", "diff.external", "credential.helper", "gpg.program", "pager.ls-tree",
		"alias.rev-parse", "uploadpack.packObjectsHook",
	} {
		value := command
		if strings.HasPrefix(setting, "alias") {
			value = "!" + command
		}
		r.git("config", setting, value)
	}
	hooks := filepath.Join(r.dir, ".git/hooks")
	for _, hook := range []string{"post-index-change", "post-checkout", "pre-commit", "fsmonitor-watchman", "reference-transaction", "query-watchman"} {
		text, err := os.ReadFile(command)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(hooks, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(hooks, hook), text, 0o700))
	}
	r.touch("a.yaml") // stat differs, so a look into the file would run the filters
	files(t, r.dir, map[string]string{"b.yaml": "changed"})

	s, err := r.read("")
	require.NoError(t, err)
	require.Equal(t, []string{"b.yaml"}, s.Changed)
	require.False(t, sprung(), "a command of the configuration was run")
	_, err = ReadGitAt(t.Context(), r.dir, "main", lines)
	require.NoError(t, err)
	require.False(t, sprung())
}

// TestHostileLazyFetch: an object that is missing in a partial clone is not fetched.
func TestHostileLazyFetch(t *testing.T) {
	t.Parallel()
	command, sprung := trap(t)
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one"})
	r.commit("x")
	hash := r.git("rev-parse", "HEAD:a.yaml")
	for key, value := range map[string]string{
		"core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true", "remote.origin.url": "ext::" + command,
		"remote.origin.uploadpack": command, "protocol.ext.allow": "always",
	} {
		r.git("config", key, value)
	}
	require.NoError(t, os.Remove(filepath.Join(r.dir, ".git/objects", hash[:2], hash[2:])))
	_, err := r.read("")
	require.Error(t, err)
	require.False(t, sprung(), "the remote's command was run")
}

// TestHostileNestedBareRepository: a folder of the checkout that looks like a bare repository is not taken for one.
func TestHostileNestedBareRepository(t *testing.T) {
	t.Parallel()
	command, sprung := trap(t)
	r := newRepo(t)
	files(t, r.dir, map[string]string{
		"flows/nf.yaml": "", "flows/a.yaml": "one", "flows/HEAD": "ref: refs/heads/main\n", "flows/objects/x": "", "flows/refs/x": "",
		"flows/config": fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfsmonitor = %s\n\tpager = %s\n", command, command),
	})
	r.commit("x")
	s, err := r.read("flows")
	require.NoError(t, err)
	require.Equal(t, []string{"a.yaml"}, paths(s))
	require.NotEmpty(t, s.Commit)
	require.False(t, sprung())

	// The same without a checkout around it: there is no .git entry, so there is no checkout.
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(r.dir, "flows"))))
	_, _, found, err := InGit(dir)
	require.NoError(t, err)
	require.False(t, found)

	// And with a .git that git passes over, git must not fall back to the folder itself.
	files(t, dir, map[string]string{".git/x": ""})
	_, err = ReadGit(t.Context(), dir, lines)
	var g *GitError
	require.ErrorAs(t, err, &g)
	require.False(t, sprung())
}

// TestHostileWorktreeSetting: a configuration cannot point the checkout at another folder.
func TestHostileWorktreeSetting(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one"})
	r.commit("x")
	r.git("config", "core.worktree", t.TempDir())
	_, err := r.read("")
	var g *GitError
	require.ErrorAs(t, err, &g)
}

// TestHostileRefs: a revision is never an option, a pattern or a path.
func TestHostileRefs(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": ""})
	r.commit("x")
	for _, ref := range []string{"", "-", "--all", "--git-dir=/", "-c", "--upload-pack=touch x"} {
		_, err := ReadGitAt(t.Context(), r.dir, ref, lines)
		require.ErrorIs(t, err, ErrBadRef, ref)
	}
	for _, ref := range []string{"HEAD:nf.yaml", ":/x y", "main main", "HEAD\n--all", "@{u}", "refs/heads/-x", "main..main", "^main"} {
		s, err := ReadGitAt(t.Context(), r.dir, ref, lines)
		if err == nil {
			require.Len(t, s.Commit, 40, ref)
		}
	}
}

// TestHostileBranchName: a branch that looks like an option is only text.
func TestHostileBranchName(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "-x/a.yaml": "", ":(exclude)nf.yaml": "", "--help.yaml": "x"})
	hash := r.commit("x")
	files(t, r.dir, map[string]string{".git/refs/heads/--exec": hash + "\n", ".git/HEAD": "ref: refs/heads/--exec\n"})
	s, err := r.read("")
	require.NoError(t, err)
	require.Equal(t, hash, s.Commit)
	require.Equal(t, "--exec", s.Branch)
	require.Equal(t, []string{"--help.yaml", "-x/a.yaml", ":(exclude)nf.yaml"}, paths(s))
}

// TestHostileReplacedObject: a replacement inside the repository does not change what a commit's hash stands for.
func TestHostileReplacedObject(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one"})
	first := r.commit("first")
	files(t, r.dir, map[string]string{"a.yaml": "evil"})
	second := r.commit("second")
	r.git("replace", first, second)
	s, err := ReadGitAt(t.Context(), r.dir, first, lines)
	require.NoError(t, err)
	a, _ := s.File("a.yaml")
	require.Equal(t, "one", string(a))
}

// TestHostileEnvironment: what the caller's environment says to git does not count.
func TestHostileEnvironment(t *testing.T) { // not parallel: it sets the environment
	r := newRepo(t)
	files(t, r.dir, map[string]string{"nf.yaml": "", "a.yaml": "one"})
	r.commit("x")
	other := newRepo(t)
	files(t, other.dir, map[string]string{"nf.yaml": "", "evil.yaml": ""})
	other.commit("x")
	command, sprung := trap(t)
	t.Setenv("GIT_DIR", filepath.Join(other.dir, ".git"))
	t.Setenv("GIT_WORK_TREE", other.dir)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
	t.Setenv("GIT_CONFIG_VALUE_0", command)
	t.Setenv("GIT_EXTERNAL_DIFF", command)
	t.Setenv("GIT_TRACE", filepath.Join(t.TempDir(), "trace"))
	s, err := ReadGit(t.Context(), r.dir, lines)
	require.NoError(t, err)
	require.Equal(t, []string{"a.yaml"}, paths(s))
	require.False(t, sprung())
	require.NoFileExists(t, os.Getenv("GIT_TRACE"))
}

func TestGitEnvAndOptions(t *testing.T) {
	t.Parallel()
	env := gitEnv([]string{"PATH=/bin", "HOME=/h", "GIT_DIR=/x", "git_dir=/y", "LANG=de_DE", "LC_ALL=de_DE"}, "/a/b")
	require.Equal(t, []string{"PATH=/bin", "HOME=/h", "LC_ALL=C"}, env[:3])
	for _, v := range env[3:] {
		require.True(t, strings.HasPrefix(v, "GIT_"), v)
	}
	require.Contains(t, env, "GIT_NO_LAZY_FETCH=1")
	require.Contains(t, env, "GIT_CEILING_DIRECTORIES=/a")
	for _, option := range []string{"safe.bareRepository=explicit", "core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never", "--no-optional-locks"} {
		require.True(t, slices.Contains(gitOptions[:], option), option)
	}
	g := &checkout{program: "git", top: "/"}
	_, err := g.run(t.Context(), "status")
	require.ErrorContains(t, err, "not among the commands")
}
