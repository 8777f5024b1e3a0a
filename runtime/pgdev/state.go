//go:build unix

package pgdev

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const stateName = "state.json"

// State is .nf/dev/state.json: how other commands in the project's folder find a live nf dev (N10).
type State struct {
	PID         int    `json:"pid"`
	DatabaseURL string `json:"databaseUrl"` // a socket
	DataDir     string `json:"dataDir"`
	URL         string `json:"url"` // of the API: loopback
	APIKey      string `json:"apiKey"`
}

// WriteState writes state.json anew, with our process id.
func (f *Folder) WriteState(s State) error {
	s.PID = os.Getpid()
	text, err := json.MarshalIndent(s, "", "  ") //nolint:gosec // the file is where the key is kept, mode 0600
	if err != nil {
		return err
	}
	path := filepath.Join(f.dir, stateName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Readers see no file or the whole one: it is written under another name first.
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := writeNew(fresh, string(text)+"\n", 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// ErrNotLive says that no nf dev runs on the folder: there is no state.json, or the process that wrote it has ended.
var ErrNotLive = errors.New("no nf dev runs on this folder")

// ReadState gives the state of the live nf dev of the project. It counts only as a regular file of this user, mode 0600, while
// the process that it names holds the lock on .nf/dev/lock; its API must be on loopback and its database a socket. Whether git
// tracks the file is for the caller to ask. ErrNotLive is the usual error; any other one says what is wrong with the file.
func ReadState(project string) (State, error) {
	base := filepath.Join(project, ".nf")
	dir := filepath.Join(base, "dev")
	for _, d := range []string{base, dir} {
		if err := ownFolder(d); errors.Is(err, os.ErrNotExist) {
			return State{}, ErrNotLive
		} else if err != nil {
			return State{}, err
		}
	}
	path := filepath.Join(dir, stateName)
	text, err := readOwn(path)
	if errors.Is(err, os.ErrNotExist) {
		return State{}, ErrNotLive
	}
	if err != nil {
		return State{}, err
	}
	holder, err := liveHolder(filepath.Join(dir, "lock"))
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return State{}, fmt.Errorf("%s: %w", path, err)
	}
	if holder != s.PID || s.PID <= 0 {
		return State{}, ErrNotLive
	}
	if err := s.check(); err != nil {
		return State{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// liveHolder gives the process that holds the lock.
func liveHolder(path string) (int, error) {
	if _, err := readOwn(path); errors.Is(err, os.ErrNotExist) {
		return 0, ErrNotLive
	} else if err != nil {
		return 0, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0) //nolint:gosec // no link is followed
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // read only
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case err == nil:
		return 0, ErrNotLive
	case errors.Is(err, syscall.EWOULDBLOCK):
		return lockHolder(file), nil
	default:
		return 0, fmt.Errorf("lock %s: %w", path, err)
	}
}

func (s State) check() error {
	db, err := url.Parse(s.DatabaseURL)
	if err != nil {
		return fmt.Errorf("databaseUrl: %w", err)
	}
	if db.Host != "" || !strings.HasPrefix(db.Query().Get("host"), "/") {
		return fmt.Errorf("databaseUrl must be a socket, not %s", db.Redacted())
	}
	if s.URL == "" { // nf dev --no-run has no API
		return nil
	}
	api, err := url.Parse(s.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	addr, err := netip.ParseAddr(api.Hostname())
	if api.Scheme != "http" || err != nil || !addr.IsLoopback() {
		return fmt.Errorf("url must be http on a loopback address, not %s", api.Redacted())
	}
	return nil
}
