//go:build unix

package pgdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pidFile is what a running server writes into its data folder.
type pidFile struct {
	pid    int
	socket string // folder
	status string // "starting", "ready", "stopping"
}

func readPidFile(data string) (pidFile, error) {
	text, err := readNoLink(filepath.Join(data, "postmaster.pid"), 4096)
	if err != nil {
		return pidFile{}, err
	}
	lines := append(strings.Split(text, "\n"), make([]string, 8)...)
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return pidFile{}, fmt.Errorf("postmaster.pid names the process %q", lines[0])
	}
	return pidFile{pid: pid, socket: strings.TrimSpace(lines[4]), status: strings.TrimSpace(lines[7])}, nil
}

// takeOver stops the server that a killed nf left running in this data folder, and clears away what it left. The caller holds
// the folder's lock, so no living nf uses that server.
func (s *Server) takeOver(ctx context.Context) error {
	p, err := readPidFile(s.data())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	path := filepath.Join(s.data(), "postmaster.pid")
	if err != nil {
		return os.Remove(path) // cut short by a crash of the machine
	}
	ours, err := s.isServer(ctx, p.pid)
	if err != nil {
		return err
	}
	if ours {
		if err := s.stopLeftover(ctx, p.pid); err != nil {
			return err
		}
	} else if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // its number now belongs to another process, which would make Postgres refuse to start
	}
	if strings.HasPrefix(filepath.Base(p.socket), "nf-") {
		if info, err := os.Lstat(p.socket); err == nil && info.IsDir() && ownerOf(info) == s.as.uid {
			return os.RemoveAll(p.socket)
		}
	}
	return nil
}

// stopLeftover asks the server to shut down, ever less politely, until it is gone.
func (s *Server) stopLeftover(ctx context.Context, pid int) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 20 * time.Second}, {syscall.SIGQUIT, 6 * time.Second}, {syscall.SIGKILL, 2 * time.Second}} {
		if err := syscall.Kill(pid, step.signal); errors.Is(err, syscall.ESRCH) {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, step.wait)
		gone := s.gone(bounded, pid)
		cancel()
		if gone {
			return nil
		}
	}
	return fmt.Errorf("the Postgres that an earlier nf left running (process %d) does not end: stop it and start again", pid)
}

func (s *Server) gone(ctx context.Context, pid int) bool {
	for {
		if running, err := s.isServer(ctx, pid); err == nil && !running {
			return true
		}
		if wait(ctx, pollEvery) != nil {
			return false
		}
	}
}

// isServer tells whether process pid is the server of our data folder: its command line says so, and it runs as our account,
// so that nobody can make root signal a process of their choice by writing a postmaster.pid.
func (s *Server) isServer(ctx context.Context, pid int) (bool, error) {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	want := []byte("-D\x00" + s.data() + "\x00")
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if args, err := os.ReadFile(filepath.Join(proc, "cmdline")); err == nil { //nolint:gosec // of the process table
		info, err := os.Lstat(proc)
		return err == nil && ownerOf(info) == s.as.uid && bytes.Contains(args, want), nil
	} else if _, missing := os.Stat("/proc/self"); missing == nil {
		return false, nil // ended in between
	}
	// A system without /proc: ps tells owner and command line.
	out, err := exec.CommandContext(ctx, "ps", "-o", "uid=,args=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	if err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); ended {
			return false, nil
		}
		return false, fmt.Errorf("asking for process %d: %w", pid, err)
	}
	uid, args, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return uid == strconv.FormatUint(uint64(s.as.uid), 10) && strings.Contains(args, "-D "+s.data()+" "), nil
}

// readNoLink reads at most limit bytes of a regular file in a folder that another account may write: no link is followed and
// no pipe waited for.
func readNoLink(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // see above
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	buf := make([]byte, min(limit, info.Size()))
	n, err := f.Read(buf)
	if err != nil && n == 0 && len(buf) > 0 {
		return "", err
	}
	return string(buf[:n]), nil
}
