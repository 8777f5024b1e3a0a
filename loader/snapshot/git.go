package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// GitError says why a commit could not be read, and which command mends it. It is never a reason to read files instead.
type GitError struct {
	What string // lower case, names the folder
	Mend string // a command or an action, "" = none known
}

func (e *GitError) Error() string {
	if e.Mend == "" {
		return e.What
	}
	return e.What + "; " + e.Mend
}

// ErrBadRef says that a person named a revision in a form that is not passed on.
var ErrBadRef = errors.New(`a revision may not be empty or begin with "-"`)

// InGit finds the git checkout that holds a folder: the nearest parent, or the folder itself, with an entry `.git`. The
// answer does not run git. Both paths are absolute and free of links; prefix is the folder below the checkout, with slashes,
// "" if they are the same.
func InGit(dir string) (top, prefix string, found bool, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", "", false, fmt.Errorf("finding the checkout of %s: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", "", false, fmt.Errorf("finding the checkout of %s: %w", dir, err)
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			rel, err := filepath.Rel(at, abs)
			if err != nil {
				return "", "", false, fmt.Errorf("finding the checkout of %s: %w", dir, err)
			}
			if rel == "." {
				rel = ""
			}
			return at, filepath.ToSlash(rel), true, nil
		}
		if filepath.Dir(at) == at {
			return "", "", false, nil
		}
	}
}

// ReadGit reads a project from the blobs of HEAD's commit (P11). The work tree is only compared with it. A folder outside of
// a checkout, a `.git` that git cannot read, a HEAD without a commit and a project that HEAD lacks are a *GitError.
func ReadGit(ctx context.Context, dir string, sel Selection) (Snapshot, error) {
	return ReadGitAt(ctx, dir, "HEAD", sel)
}

// ReadGitAt is ReadGit for a revision that a person named. One that is empty or begins with "-" is ErrBadRef; only its hash
// is handed on.
func ReadGitAt(ctx context.Context, dir, ref string, sel Selection) (Snapshot, error) {
	if ref == "" || ref[0] == '-' {
		return Snapshot{}, fmt.Errorf("revision %q: %w", ref, ErrBadRef)
	}
	g, err := openGit(ctx, dir)
	if err != nil {
		return Snapshot{}, err
	}
	snap, _, err := g.read(ctx, ref, sel, nil)
	if err != nil || ref != "HEAD" {
		return snap, err
	}
	if snap.Changed, err = g.changed(ctx, snap, sel); err != nil {
		return Snapshot{}, err
	}
	snap.Dirty = len(snap.Changed) > 0
	return snap, nil
}

// read reads a revision, and gives the blobs that it used. Those among known are not read again.
func (g *checkout) read(ctx context.Context, ref string, sel Selection, known map[string][]byte) (Snapshot, map[string][]byte, error) {
	commit, err := g.commit(ctx, ref)
	if err != nil {
		return Snapshot{}, nil, err
	}
	t, err := g.tree(ctx, ref, commit)
	if err != nil {
		return Snapshot{}, nil, err
	}
	t.known, t.used = known, map[string][]byte{}
	snap, err := t.snapshot(sel)
	if err != nil {
		return Snapshot{}, nil, err
	}
	if ref == "HEAD" {
		snap.Branch = g.branch(ctx)
	}
	return snap, t.used, nil
}

// checkout is a git checkout and a project in it.
type checkout struct {
	program string
	top     string // folder with .git
	prefix  string // project below top, "" = top
}

func openGit(ctx context.Context, dir string) (*checkout, error) {
	top, prefix, found, err := InGit(dir)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &GitError{What: fmt.Sprintf("%s is not in a git checkout", dir), Mend: "run: git init && git add -A && git commit"}
	}
	g := &checkout{top: top, prefix: prefix}
	if g.program, err = findProgram(); err != nil {
		return nil, &GitError{What: fmt.Sprintf("%s is in a git checkout, and the git program was not found", dir), Mend: "install git"}
	}
	dot := filepath.Join(top, ".git")
	if info, err := os.Lstat(dot); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return nil, &GitError{What: dot + " is neither a folder nor a file", Mend: "make the checkout anew: git clone"}
	}
	out, err := g.run(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, g.explain(err)
	}
	seen, err := filepath.EvalSymlinks(strings.TrimSuffix(out, "\n"))
	if err != nil || seen != top {
		return nil, &GitError{
			What: fmt.Sprintf("git takes %q for the checkout, not %s, whose .git it passes over", strings.TrimSuffix(out, "\n"), top),
			Mend: "remove the broken .git, or make the checkout anew: git clone",
		}
	}
	return g, nil
}

// explain turns what git said about a checkout into a GitError.
func (g *checkout) explain(err error) error {
	var run *runError
	if !errors.As(err, &run) {
		return err
	}
	switch {
	case strings.Contains(run.stderr, "dubious ownership"):
		return &GitError{
			What: g.top + " belongs to another user, so git does not read it",
			Mend: "run: git config --global --add safe.directory " + shellWord(g.top),
		}
	case strings.Contains(run.stderr, "not a git repository"):
		return &GitError{What: "git cannot read " + filepath.Join(g.top, ".git"), Mend: "mend it (git fsck), or make the checkout anew: git clone"}
	}
	return &GitError{What: "git cannot read " + g.top + ": " + firstLine(run.stderr), Mend: "look with: git -C " + shellWord(g.top) + " status"}
}

// commit gives the hash of a revision's commit.
func (g *checkout) commit(ctx context.Context, ref string) (string, error) {
	out, err := g.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	hash := strings.TrimSuffix(out, "\n")
	var run *runError
	switch {
	case errors.As(err, &run) && ref == "HEAD":
		return "", &GitError{What: "HEAD of " + g.top + " has no commit", Mend: "run: git -C " + shellWord(g.top) + " add -A && git -C " + shellWord(g.top) + " commit"}
	case errors.As(err, &run):
		return "", &GitError{What: fmt.Sprintf("revision %q is not known in %s", ref, g.top), Mend: "in a shallow clone, fetch more: git fetch --unshallow"}
	case err != nil:
		return "", err
	case !isHash(hash):
		return "", &GitError{What: fmt.Sprintf("git gave %q for revision %q", hash, ref)}
	}
	return hash, nil
}

// branch gives the name of the branch that HEAD is on, "" if it is on none.
func (g *checkout) branch(ctx context.Context) string {
	out, err := g.run(ctx, "rev-parse", "--symbolic-full-name", "HEAD")
	if err != nil {
		return ""
	}
	name, on := strings.CutPrefix(strings.TrimSuffix(out, "\n"), "refs/heads/")
	if !on {
		return ""
	}
	return name
}

func (g *checkout) lacks(ref string) error {
	path := ProjectFile
	if g.prefix != "" {
		path = g.prefix + "/" + ProjectFile
	}
	return &GitError{
		What: fmt.Sprintf("%s of %s has no %s", ref, g.top, path),
		Mend: fmt.Sprintf("run: git -C %s add %s && git -C %s commit", shellWord(g.top), shellWord(filepath.ToSlash(filepath.Dir(path))), shellWord(g.top)),
	}
}

// isHash says whether s is a full object name.
func isHash(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// parseCommit reads parents and committer time out of a commit object.
func parseCommit(text string) (parents []string, at time.Time) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			break
		}
		if p, ok := strings.CutPrefix(line, "parent "); ok && isHash(p) {
			parents = append(parents, p)
		}
		if c, ok := strings.CutPrefix(line, "committer "); ok {
			fields := strings.Fields(c)
			if len(fields) >= 2 {
				if sec, err := strconv.ParseInt(fields[len(fields)-2], 10, 64); err == nil {
					at = time.Unix(sec, 0).UTC()
				}
			}
		}
	}
	return parents, at
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// shellWord quotes a path for a command that a person may copy.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
