package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"syscall"
	"time"

	"nf/schema/diag"
)

func diagCode(code string) diag.Code { return diag.Code(code) }

// maxReads is how often a folder is read before it is called busy.
const maxReads = 5

// ReadDir reads a project from the files of a folder. Everything is opened beneath the folder, so no link and no race leads
// out of it. The folder is listed and looked at again after the read; it is read again if anything moved meanwhile, and
// ErrBusy comes after five times. What cannot be read is a finding in the snapshot; the error is for a folder that cannot
// be opened at all.
func ReadDir(dir string, sel Selection) (Snapshot, error) {
	return readDir(dir, sel, DefaultLimits(), func() {})
}

func readDir(dir string, sel Selection, limits Limits, read func()) (Snapshot, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Snapshot{}, fmt.Errorf("opening project folder %s: %w", dir, err)
	}
	defer root.Close() //nolint:errcheck // opened for reading
	for range maxReads {
		t := newDirTree(root)
		snap := readTree(t, sel, limits)
		read()
		if t.unmoved() {
			return snap, nil
		}
	}
	return Snapshot{}, fmt.Errorf("reading project folder %s: %w", dir, ErrBusy)
}

// dirTree is a folder on disk. It remembers what it saw.
type dirTree struct {
	root  *os.Root
	lists map[string][]entry
	kinds map[string]kind // of every path that was looked at; missing = it was not there
	stats map[string]fs.FileInfo
	links map[string]string
	texts map[string][]byte // of the files in stats
	known *dirTree          // an earlier look: what has not changed since is not read again; may be nil
	fresh time.Time         // files of known that changed at or after this time are read all the same; zero = none is taken over
}

// missing is the kind of what is not there.
const missing kind = 255

func newDirTree(root *os.Root) *dirTree {
	return &dirTree{
		root: root, lists: map[string][]entry{}, kinds: map[string]kind{}, stats: map[string]fs.FileInfo{}, links: map[string]string{},
		texts: map[string][]byte{},
	}
}

func (t *dirTree) list(dir string) ([]entry, error) {
	entries, err := t.look(dir)
	if err == nil {
		t.lists[dir] = entries
	}
	return entries, err
}

func (t *dirTree) look(dir string) ([]entry, error) {
	f, err := t.root.Open(filepath.FromSlash(dir))
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	found, err := f.ReadDir(-1)
	if err != nil {
		return nil, plain(err)
	}
	entries := make([]entry, 0, len(found))
	for _, e := range found {
		entries = append(entries, entry{e.Name(), kindOf(e.Type())})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	return entries, nil
}

func kindOf(mode fs.FileMode) kind {
	switch {
	case mode.IsRegular():
		return regular
	case mode.IsDir():
		return folder
	case mode&fs.ModeSymlink != 0:
		return link
	}
	return special
}

func (t *dirTree) stat(path string) (kind, error) {
	k, err := t.kind(path)
	t.kinds[path] = k
	return k, err
}

func (t *dirTree) kind(path string) (kind, error) {
	info, err := t.root.Lstat(filepath.FromSlash(path))
	if err != nil {
		return missing, plain(err)
	}
	return kindOf(info.Mode()), nil
}

func (t *dirTree) readlink(path string) (string, error) {
	target, err := t.root.Readlink(filepath.FromSlash(path))
	t.links[path] = target
	return filepath.ToSlash(target), plain(err)
}

// read opens without waiting (a pipe that took the file's place must not hang the load) and reads a regular file only.
func (t *dirTree) read(path string, limit int) ([]byte, error) {
	if text, info, ok := t.readBefore(path); ok && len(text) <= limit {
		t.stats[path], t.texts[path] = info, text
		return text, nil
	}
	f, err := t.root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, plain(err)
	}
	t.stats[path] = info
	if len(data) > limit {
		return nil, errTooLarge
	}
	t.texts[path] = data
	return data, nil
}

// readBefore gives the text of an earlier look, if the file still looks the same and had been left alone for a while when it was read: a write within one
// tick of the file system's clock could not be told from none.
func (t *dirTree) readBefore(path string) ([]byte, fs.FileInfo, bool) {
	if t.known == nil {
		return nil, nil, false
	}
	before, text := t.known.stats[path], t.known.texts[path]
	if before == nil || text == nil || !before.ModTime().Before(t.fresh) {
		return nil, nil, false
	}
	now, err := t.root.Lstat(filepath.FromSlash(path))
	if err != nil || !sameFile(before, now) {
		return nil, nil, false
	}
	return text, now, true
}

// sameFile says whether a file looks as it did.
func sameFile(before, now fs.FileInfo) bool {
	return os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime()) && changedAt(before) == changedAt(now)
}

// unmoved says whether every folder, link and file still looks as it did when it was read.
func (t *dirTree) unmoved() bool {
	for dir, before := range t.lists {
		if now, err := t.look(dir); err != nil || !reflect.DeepEqual(before, now) {
			return false
		}
	}
	for path, before := range t.links {
		if now, _ := t.root.Readlink(filepath.FromSlash(path)); now != before {
			return false
		}
	}
	for path, before := range t.kinds {
		if now, _ := t.kind(path); now != before {
			return false
		}
	}
	for path, before := range t.stats {
		now, err := t.root.Lstat(filepath.FromSlash(path))
		if err != nil || !sameFile(before, now) {
			return false
		}
	}
	return true
}

// plain turns an error of the file system into one without the path, which the finding names already.
func plain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return errMissing
	case errors.Is(err, syscall.ELOOP):
		return errLoop
	}
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
