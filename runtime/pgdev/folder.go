//go:build unix

package pgdev

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// InUseError says that another nf runs on the folder.
type InUseError struct {
	Dir string
	PID int // 0 if unknown
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("another nf (process %d) runs on %s: stop it first", e.PID, e.Dir)
}

// Folder is .nf/dev of a project: the lock, the key, state.json and, where the server's account can enter it, the data. It is
// open in one process at a time. Not safe for concurrent use.
type Folder struct {
	dir  string // absolute, links resolved: …/.nf/dev
	lock *os.File
}

// OpenFolder makes .nf/dev in the project if need be, writes .nf/.gitignore, checks that nothing at or below .nf is a link or
// belongs to another user, and takes the lock. An *InUseError says that another nf has it.
func OpenFolder(ctx context.Context, project string) (*Folder, error) {
	abs, err := filepath.Abs(project)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	base := filepath.Join(abs, ".nf")
	dir := filepath.Join(base, "dev")
	for _, d := range []string{base, dir} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // what is secret in it is 0600
			return nil, err
		}
		if err := ownFolder(d); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(dir, devMode()); err != nil {
		return nil, err
	}
	if err := writeNew(filepath.Join(base, ".gitignore"), "/dev/\n/.gitignore\n", 0o644); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := checkBelow(base); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir}
	if err := f.take(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// devMode lets the account of root's server pass through to its data; everyone else's folder is closed.
func devMode() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// take locks .nf/dev/lock and writes our process id into it. The file is never removed: whoever opened it earlier would hold
// a lock that nobody else sees.
func (f *Folder) take(ctx context.Context) error {
	path := filepath.Join(f.dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) //nolint:gosec // no link is followed
	if err != nil {
		return err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for try := 0; errors.Is(err, syscall.EWOULDBLOCK) && try < 5; try++ {
		_ = wait(ctx, 20*time.Millisecond) // ReadState holds it for a moment
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		defer file.Close() //nolint:errcheck // read only
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", path, err)
		}
		return &InUseError{Dir: f.dir, PID: lockHolder(file)}
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	f.lock = file
	return nil
}

func lockHolder(file *os.File) int {
	text := make([]byte, 32)
	n, err := file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// Close removes state.json and gives the lock up.
func (f *Folder) Close() error {
	err := os.Remove(filepath.Join(f.dir, stateName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.lock.Close())
}

// Path is the absolute path of .nf/dev.
func (f *Folder) Path() string { return f.dir }

// Start runs the private server of this folder. Options.Dir is chosen here: .nf/dev/postgres, or where the server's account
// cannot enter that, /var/lib/nf/<hash of the folder>.
func (f *Folder) Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := f.place(o)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	return Start(ctx, o)
}

// Reset removes the data of this folder. No server may be running in this process.
func (f *Folder) Reset(ctx context.Context, o Options) error {
	dir, err := f.place(o)
	if err != nil {
		return err
	}
	self, err := me()
	if err != nil {
		return err
	}
	s := &Server{dir: dir, opts: o}
	if s.as, err = serverAccount(self, s.data()); err != nil {
		return err
	}
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

const sharedPlace = "/var/lib/nf"

func (f *Folder) place(o Options) (string, error) {
	near := filepath.Join(f.dir, "postgres")
	if os.Geteuid() != 0 || len(o.Binaries) == 0 {
		return near, nil
	}
	self, err := me()
	if err != nil {
		return "", err
	}
	as, err := serverAccount(self, filepath.Join(near, "data"))
	if err != nil {
		return "", err
	}
	if as.canEnter(f.dir, o.Binaries[0]) {
		return near, nil
	}
	if err := os.MkdirAll(sharedPlace, 0o711); err != nil { //nolint:gosec // the server's account passes through
		return "", err
	}
	if err := ownFolder(sharedPlace); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(f.dir))
	return filepath.Join(sharedPlace, hex.EncodeToString(sum[:8])), nil
}

// Secret gives the content of a file of .nf/dev, made on first use by create; mode 0600.
func (f *Folder) Secret(name string, create func() (string, error)) (string, error) {
	path := filepath.Join(f.dir, name)
	text, err := readOwn(path)
	if !errors.Is(err, os.ErrNotExist) {
		return text, err
	}
	if text, err = create(); err != nil {
		return "", err
	}
	return text, writeNew(path, text, 0o600)
}

// ownFolder is an error unless path is a folder, no link, and ours.
func ownFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return own(path, info, info.IsDir(), "a folder")
}

func own(path string, info os.FileInfo, right bool, kind string) error {
	if info.Mode()&os.ModeSymlink != 0 {
		return fmt.Errorf("%s is a link: nf keeps keys and data only in folders and files of its own; remove it", path)
	}
	if !right {
		return fmt.Errorf("%s is not %s: remove it", path, kind)
	}
	if uid := ownerOf(info); int64(uid) != int64(os.Geteuid()) {
		return fmt.Errorf("%s belongs to the OS user %d, and nf runs as %d: remove it or run nf as its owner", path, uid, os.Geteuid())
	}
	return nil
}

// checkBelow looks at everything at or below .nf but the data itself, which belongs to the server.
func checkBelow(base string) error {
	return filepath.WalkDir(base, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed in between by an nf that ends
		}
		if err != nil {
			return err
		}
		if entry.IsDir() && path == filepath.Join(base, "dev", "postgres", "data") {
			return filepath.SkipDir
		}
		if err := own(path, info, info.IsDir() || info.Mode().IsRegular(), "a folder or regular file"); err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink > 1 {
			return fmt.Errorf("%s has %d names (hard links): remove it", path, st.Nlink)
		}
		return nil
	})
}

// readOwn reads a small file of ours: regular, mode 0600, no link.
func readOwn(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if err := own(path, info, info.Mode().IsRegular(), "a regular file"); err != nil {
		return "", err
	}
	if info.Mode().Perm() != 0o600 {
		return "", fmt.Errorf("%s has mode %04o, and it must be 0600: remove it", path, info.Mode().Perm())
	}
	return readNoLink(path, 1<<20)
}

// writeNew writes a file that is not there yet.
func writeNew(path, text string, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // paths of our own
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Chmod(mode), file.Close()) // Chmod: whatever the umask
}
