//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	role     = "nf" // the only database role
	database = "nf"
	// ownMark stands in the command line of every server of ours.
	ownMark = "cluster_name=nf-private"

	startTimeout = 60 * time.Second // recovery of a crashed server included
	stopTimeout  = 30 * time.Second // then the server is told to quit at once
	pollEvery    = 10 * time.Millisecond
)

// Options say which server Start runs.
type Options struct {
	// Dir is the folder for data, access files and log. It is made if it is not there, and must belong to the user who runs
	// nf. Only one process may use it at a time: the caller holds a lock (Folder does).
	Dir string
	// Binaries of the server. Several may be given, best first: an existing cluster takes those of its own version.
	Binaries []Binaries
	// Settings are further server settings, by name.
	Settings map[string]string
	// Ephemeral is for tests: nothing is synced to disk, and server, Dir and socket folder vanish when this process ends,
	// however it ends.
	Ephemeral bool
}

// Server is a running private Postgres. Its methods are safe for concurrent use.
type Server struct {
	dir    string // holds data, access files and log
	socket string // folder of the socket
	opts   Options
	as     account
	cmd    *exec.Cmd
	dog    *watchdog
	done   chan struct{}
	err    error // how the server ended; read after done
	stop   sync.Once
}

// Start makes the cluster in o.Dir if there is none, takes over what a killed nf left there, starts the server and waits until
// it accepts connections. The context bounds the start only; the server runs until Stop or the end of this process.
func Start(ctx context.Context, o Options) (*Server, error) {
	if len(o.Binaries) == 0 {
		return nil, fmt.Errorf("%w given", ErrNoBinaries)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	self, err := me()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, opts: o}
	if s.as, err = serverAccount(self, s.data()); err != nil {
		return nil, err
	}
	if err := s.makeFolder(); err != nil {
		return nil, err
	}
	bin, err := s.binaries()
	if err != nil {
		return nil, err
	}
	if !s.as.canEnter("/", bin) {
		return nil, fmt.Errorf("the account %s, as which root's Postgres runs, may not run %s/postgres: install the server system-wide (make pg)", s.as.name, bin.Dir)
	}
	if !s.as.canEnter(s.dir, bin) {
		return nil, fmt.Errorf("the account %s, as which root's Postgres runs, cannot enter %s", s.as.name, s.dir)
	}
	if err := s.takeOver(ctx); err != nil {
		return nil, err
	}
	if err := s.initialise(ctx, bin); err != nil {
		return nil, err
	}
	if err := s.writeAccess(self); err != nil {
		return nil, err
	}
	if s.socket, err = socketFolder(s.as, bin); err != nil {
		return nil, err
	}
	if err := s.launch(ctx, bin); err != nil {
		_ = os.RemoveAll(s.socket)
		return nil, err
	}
	return s, nil
}

// URL is the address of the server's database nf: a socket, no host, no password.
func (s *Server) URL() string {
	query := url.Values{"host": {s.socket}, "user": {role}}
	return "postgres:///" + database + "?" + query.Encode()
}

// Dir is the folder of the data, access files and log.
func (s *Server) Dir() string { return s.dir }

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop shuts the server down, disconnecting whoever is connected, and returns when its process is gone. When ctx ends or the
// server takes longer than 30 s it is told to quit at once; its data stays whole all the same.
func (s *Server) Stop(ctx context.Context) error {
	var err error
	s.stop.Do(func() { err = s.shutdown(ctx) })
	<-s.done
	return err
}

func (s *Server) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	process := s.cmd.Process
	_ = process.Signal(syscall.SIGINT) // "fast": roll back, checkpoint, end
	select {
	case <-s.done:
	case <-ctx.Done():
		_ = process.Signal(syscall.SIGQUIT) // "immediate": end; the next start recovers
		hard := time.NewTimer(5 * time.Second)
		defer hard.Stop()
		select {
		case <-s.done:
		case <-hard.C:
			_ = process.Kill()
			<-s.done
		}
	}
	s.dog.release()
	err := os.RemoveAll(s.socket)
	if s.opts.Ephemeral {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "postgres.log") }

// makeFolder makes the folder around the data. What the server reads there is readable for its account, and the folder can be
// entered but not listed by it.
func (s *Server) makeFolder() error {
	mode := os.FileMode(0o700)
	if s.as.credential() != nil {
		mode = 0o711
	}
	if err := os.Mkdir(s.dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := ownFolder(s.dir); err != nil {
		return err
	}
	return os.Chmod(s.dir, mode)
}

// binaries chooses those of the existing cluster's version, else the first.
func (s *Server) binaries() (Binaries, error) {
	text, err := readNoLink(filepath.Join(s.data(), "PG_VERSION"), 16)
	if errors.Is(err, os.ErrNotExist) {
		return s.opts.Binaries[0], nil
	}
	if err != nil {
		return Binaries{}, err
	}
	version := strings.TrimSpace(text)
	at := slices.IndexFunc(s.opts.Binaries, func(b Binaries) bool { return strconv.Itoa(b.Major) == version })
	if at < 0 {
		return Binaries{}, fmt.Errorf("the data in %s was made by PostgreSQL %s, and the binaries found are of version %d (%s): set NF_PG_BIN to those of version %s, or begin anew with nf dev --reset",
			s.data(), version, s.opts.Binaries[0].Major, s.opts.Binaries[0].Dir, version)
	}
	return s.opts.Binaries[at], nil
}

// initialise makes the cluster and its database, under another name until it is whole: a kill in the middle leaves no half
// cluster in its place.
func (s *Server) initialise(ctx context.Context, bin Binaries) error {
	if _, err := os.Lstat(s.data()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	old, err := filepath.Glob(s.data() + ".new-*")
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	fresh, err := os.MkdirTemp(s.dir, "data.new-") // mode 0700
	if err != nil {
		return err
	}
	if s.as.credential() != nil {
		if err := os.Lchown(fresh, int(s.as.uid), int(s.as.gid)); err != nil {
			return err
		}
	}
	args := []string{"--pgdata", fresh, "--username", role, "--auth", "peer", "--no-locale", "--encoding", "UTF8"}
	if s.opts.Ephemeral {
		args = append(args, "--no-sync")
	}
	if out, err := s.command(ctx, bin, "initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(string(out)))
	}
	single := s.command(ctx, bin, "postgres", "--single", "-D", fresh, "postgres")
	single.Stdin = strings.NewReader("CREATE DATABASE " + database + "\n")
	if out, err := single.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the database: %w: %s", err, lastLines(string(out)))
	}
	return os.Rename(fresh, s.data())
}

// writeAccess writes pg_hba.conf and pg_ident.conf anew, outside of the data folder.
func (s *Server) writeAccess(self account) error {
	files := []struct{ name, text string }{
		{"pg_hba.conf", "local all " + role + " peer map=nf\n"},
		{"pg_ident.conf", fmt.Sprintf("nf %q %s\n", self.name, role)},
	}
	mode := os.FileMode(0o600)
	if s.as.credential() != nil {
		mode = 0o644 // names only
	}
	for _, f := range files {
		path := filepath.Join(s.dir, f.name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := writeNew(path, f.text, mode); err != nil {
			return err
		}
	}
	return nil
}

// settings are the server's, on its command line, where nothing in the data folder can overrule them.
func (s *Server) settings() []string {
	set := map[string]string{
		"hba_file":                filepath.Join(s.dir, "pg_hba.conf"),
		"ident_file":              filepath.Join(s.dir, "pg_ident.conf"),
		"listen_addresses":        "",
		"port":                    "5432",
		"unix_socket_directories": s.socket,
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"jit":                     "off",
	}
	if s.opts.Ephemeral {
		set["fsync"], set["full_page_writes"] = "off", "off"
	}
	maps.Copy(set, s.opts.Settings)
	args := []string{"-c", ownMark}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		args = append(args, "-c", name+"="+set[name])
	}
	return args
}

// launch starts the server and waits until it is ready. A server whose backends outlive it for a moment (it was killed) is
// tried again.
func (s *Server) launch(ctx context.Context, bin Binaries) error {
	for {
		exited, err := s.launchOnce(ctx, bin)
		if err == nil {
			return nil
		}
		text := readable(s.logFile())
		if !exited || !strings.Contains(text, "pre-existing shared memory block") {
			return fmt.Errorf("starting Postgres: %w: %s", err, lastLines(text))
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("starting Postgres: %w: %s", err, lastLines(text))
		}
	}
}

func (s *Server) launchOnce(ctx context.Context, bin Binaries) (exited bool, err error) {
	if err := os.Rename(s.logFile(), s.logFile()+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	log, err := os.OpenFile(s.logFile(), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close() //nolint:errcheck // the server has its own descriptor
	// The server outlives ctx, which bounds the start only.
	s.cmd = s.command(context.WithoutCancel(ctx), bin, "postgres", append([]string{"-D", s.data()}, s.settings()...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr.Setsid = true // Ctrl-C on the terminal is for nf, which stops the server last
	if err := s.cmd.Start(); err != nil {
		return false, err
	}
	s.done = make(chan struct{})
	done := s.done
	go func() {
		s.err = s.cmd.Wait()
		close(done)
	}()
	if s.dog, err = watch(s.cmd.Process.Pid, s); err == nil {
		err = s.ready(ctx)
	}
	if err == nil {
		return false, nil
	}
	select {
	case <-s.done:
		exited = true
	default:
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.done
	}
	s.dog.release()
	return exited, err
}

// ready waits until the server itself says so in its postmaster.pid.
func (s *Server) ready(ctx context.Context) error {
	for {
		if p, err := readPidFile(s.data()); err == nil && p.pid == s.cmd.Process.Pid && p.status == "ready" {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("the server ended: %w", errors.Join(s.err, errors.New("it says")))
		default:
		}
		if err := wait(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// command is a child that runs as the server's account, with a minimal environment: no secret of nf's reaches it.
func (s *Server) command(ctx context.Context, bin Binaries, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin.Dir, name), args...) //nolint:gosec // our own arguments
	cmd.Dir = s.dir
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as.credential()}
	return cmd
}

func environment() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// socketFolder makes a folder, mode 0700, of the server's account, short enough for the path of a Unix socket.
func socketFolder(as account, bin Binaries) (string, error) {
	const longest = 103 - len("/.s.PGSQL.5432.lock") // macOS allows 104 bytes with the final NUL
	var errs []error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		dir, err := os.MkdirTemp(parent, "nf-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if as.credential() != nil {
			err = os.Lchown(dir, int(as.uid), int(as.gid))
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(dir) > longest:
			errs = append(errs, fmt.Errorf("%s is too long for a socket", dir))
		case !as.canEnter(dir, bin):
			errs = append(errs, fmt.Errorf("the account %s cannot enter %s", as.name, dir))
		default:
			return dir, nil
		}
		_ = os.Remove(dir)
	}
	return "", fmt.Errorf("folder for the socket: %w", errors.Join(errs...))
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// lastLines gives the end of a text, for an error message.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], " | ")
}
