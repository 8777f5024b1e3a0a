//go:build unix

package pgdev

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watchdog is a shell that waits for the end of a pipe from this process, and then stops the server. A pipe ends however its
// writer ends, so kill -9 of nf leaves no server behind.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watchScript gets: process, data folder, socket folder, and for an ephemeral server the folder to remove. It signals only
// while the data folder's own file names that process.
const watchScript = `
read -r line
ours() { [ -f "$2/postmaster.pid" ] && read -r pid < "$2/postmaster.pid" && [ "$pid" = "$1" ]; }
ours "$@" && kill -INT "$1"
i=0
while ours "$@" && [ $i -lt 200 ]; do sleep 0.1; i=$((i+1)); done
ours "$@" && kill -QUIT "$1"
rm -rf "$3"
[ -z "$4" ] || rm -rf "$4"
`

func watch(pid int, s *Server) (*watchdog, error) {
	remove := ""
	if s.opts.Ephemeral {
		remove = s.dir
	}
	cmd := exec.Command("/bin/sh", "-c", watchScript, "nf-watchdog", strconv.Itoa(pid), s.data(), s.socket, remove) //nolint:gosec,noctx // lives as long as we
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &watchdog{cmd, pipe}, nil
}

// release ends the watchdog; the server has ended.
func (w *watchdog) release() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.pipe.Close()
}
