package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Mode says what of a folder is read (P11).
type Mode int

// The modes.
const (
	Auto  Mode = iota // HEAD's commit in a git checkout, the files elsewhere
	Git               // HEAD's commit, and nothing else
	Files             // the files, in a checkout too
)

// Look is what can be seen of a source without reading it.
type Look struct {
	// Missing says that the folder is not there, or that it is empty: a volume that is not mounted yet.
	Missing bool
	// Commit is HEAD's commit; "" where files are read.
	Commit string
	// Busy says why the files must not be read now, "" if they may: git is changing them.
	Busy string
}

// Source reads one project again and again. What has not changed since the last read is not read again. Not safe for concurrent use.
type Source struct {
	dir  string
	mode Mode
	sel  Selection
	now  func() time.Time

	files  *dirTree // of the last read of files
	readAt time.Time
	sound  bool              // the last read of files found nothing wrong
	blobs  map[string][]byte // of the last read of a commit, by hash
}

// NewSource makes the source of a project's folder, which need not exist yet. now tells the time.
func NewSource(dir string, mode Mode, sel Selection, now func() time.Time) *Source {
	return &Source{dir: dir, mode: mode, sel: sel, now: now}
}

// Dir is the folder.
func (s *Source) Dir() string { return s.dir }

// commits says whether a commit is read, and where the checkout is.
func (s *Source) commits() (top string, yes bool, err error) {
	top, _, found, err := InGit(s.dir)
	if err != nil {
		return "", false, err
	}
	return top, s.mode == Git || s.mode == Auto && found, nil
}

// Look looks at the source. A checkout that git cannot read is a *GitError.
func (s *Source) Look(ctx context.Context) (Look, error) {
	if gone(s.dir) {
		return Look{Missing: true}, nil
	}
	top, commits, err := s.commits()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Look{Missing: true}, nil
		}
		return Look{}, err
	}
	if !commits {
		return Look{Busy: busy(top)}, nil
	}
	g, err := openGit(ctx, s.dir)
	if err != nil {
		return Look{}, err
	}
	commit, err := g.commit(ctx, "HEAD")
	return Look{Commit: commit}, err
}

// gone says whether a folder is not there or empty.
func gone(dir string) bool {
	f, err := os.Open(dir) //nolint:gosec // the operator's folder
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	names, err := f.Readdirnames(1)
	return len(names) == 0 && errors.Is(err, io.EOF)
}

// busy says which operation of git is changing the work tree of a checkout, "" if none is known.
func busy(top string) string {
	if top == "" {
		return ""
	}
	dir := gitDir(top)
	for _, sign := range []struct{ name, what string }{
		{"index.lock", "git is at work"}, {"MERGE_HEAD", "a merge is in progress"}, {"rebase-merge", "a rebase is in progress"}, {"rebase-apply", "a rebase is in progress"},
	} {
		path := filepath.Join(dir, sign.name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Sprintf("%s (%s)", sign.what, path)
		}
	}
	return ""
}

// gitDir is the folder that holds HEAD and the index of a checkout: .git, or what the file .git of a linked work tree names.
func gitDir(top string) string {
	dot := filepath.Join(top, ".git")
	text, err := os.ReadFile(dot) //nolint:gosec // a folder where it is no file
	if err != nil {
		return dot
	}
	dir, ok := strings.CutPrefix(firstLine(string(text)), "gitdir: ")
	if !ok {
		return dot
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(top, dir)
	}
	return dir
}

// Read reads the project: HEAD's commit, or the files. Errors are those of ReadGit and ReadDir. Whether the work tree differs from the commit is left
// to Changed.
func (s *Source) Read(ctx context.Context) (Snapshot, error) {
	_, commits, err := s.commits()
	if err != nil {
		return Snapshot{}, err
	}
	if !commits {
		return s.readFiles()
	}
	g, err := openGit(ctx, s.dir)
	if err != nil {
		return Snapshot{}, err
	}
	snap, used, err := g.read(ctx, "HEAD", s.sel, s.blobs)
	if err == nil {
		s.blobs, s.files = used, nil
	}
	return snap, err
}

// settleFor is how long a file must have been left alone for its time stamp to tell whether it was written to: longer than a tick of any file system's
// clock.
const settleFor = 3 * time.Second

func (s *Source) readFiles() (Snapshot, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return Snapshot{}, fmt.Errorf("opening project folder %s: %w", s.dir, err)
	}
	defer root.Close() //nolint:errcheck // opened for reading
	for range maxReads {
		t := newDirTree(root)
		started := s.now()
		if s.files != nil {
			t.known, t.fresh = s.files, s.readAt.Add(-settleFor)
		}
		snap := readTree(t, s.sel, DefaultLimits())
		t.known = nil
		if t.unmoved() {
			s.files, s.readAt, s.sound, s.blobs = t, started, len(snap.Findings) == 0, nil
			return snap, nil
		}
	}
	return Snapshot{}, fmt.Errorf("reading project folder %s: %w", s.dir, ErrBusy)
}

// Unmoved says whether everything still looks as it did when the files were read: then a read would give the same. It costs a look at each file and
// folder. False when in doubt, and for commits.
func (s *Source) Unmoved() bool {
	if s.files == nil || !s.sound {
		return false
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return false
	}
	defer root.Close() //nolint:errcheck // opened for reading
	for _, info := range s.files.stats {
		if !info.ModTime().Before(s.readAt.Add(-settleFor)) {
			return false
		}
	}
	look := *s.files
	look.root = root
	return look.unmoved()
}

// Changed lists the paths, at most MaxChanged, in which the work tree differs from the commit that was read. Nil where files are read.
func (s *Source) Changed(ctx context.Context, snap Snapshot) ([]string, error) {
	if snap.Commit == "" {
		return nil, nil
	}
	g, err := openGit(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	return g.changed(ctx, snap, s.sel)
}
