package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// maxFile is the largest secret, in bytes (contract 5.4).
const maxFile = 64 << 10

// Dir gives secrets from files <dir>/<namespace>/<name>/<key>, read at each use, so that a rotated secret counts at once.
type Dir struct{ root *os.Root }

// OpenDir opens the folder. Files are looked for beneath it only: a link that leads out is an error, one that stays inside, as
// mounted volumes use, is followed.
func OpenDir(dir string) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of secrets: %w", err)
	}
	return &Dir{root: root}, nil
}

// Close closes the folder. No look-up may follow.
func (d *Dir) Close() error {
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("closing the folder of secrets: %w", err)
	}
	return nil
}

// Lookup implements Provider.
func (d *Dir) Lookup(_ context.Context, ref Reference) (string, error) {
	name := path.Join(ref.Namespace, ref.Name, ref.Key)
	value, err := d.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("file %s: %w", name, ErrUnresolved)
	case err != nil:
		return "", fmt.Errorf("file %s: %w", name, plain(err))
	case value == "":
		return "", fmt.Errorf("file %s is empty: %w", name, ErrUnresolved)
	}
	return value, nil
}

// read gives the content of a file without its last line break.
func (d *Dir) read(name string) (string, error) {
	// Not blocking, so that a pipe in the place of a file cannot hold a call for ever.
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("opening: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("looking at it: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("reading: %w", err)
	}
	if len(content) > maxFile {
		return "", fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return trim(string(content)), nil
}

// plain takes the path of this machine out of an error: it would go into the reason of an attempt.
func plain(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
