package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a program that the demo started. It has a process group of its own, so that a Ctrl-C reaches the demo alone, which ends the
// programs in the right order.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	said bytes.Buffer
}

// Write keeps what the program says: it is shown when something goes wrong.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *process) tell(to io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.said.String()) {
		_, _ = fmt.Fprint(to, "    ", line)
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the program as a crash would.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// endsWithin is how long a program may take to end after SIGTERM.
const endsWithin = 40 * time.Second

// end asks the program to end, and says so if it had to be killed.
func (p *process) end() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	t := time.NewTimer(endsWithin)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.name, endsWithin)
	}
	if err := syscall.Kill(-p.pid(), 0); !errors.Is(err, syscall.ESRCH) {
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
		return fmt.Errorf("%s left processes behind", p.name)
	}
	return nil
}

func command(ctx context.Context, dir string, environment []string, name string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, arguments...) //nolint:gosec // programs of this repository
	cmd.Dir, cmd.Env = dir, environment
	return cmd
}

// start starts a program in the project's folder.
func (d *demo) start(name string, environment []string, program string, arguments ...string) (*process, error) {
	if program == d.nf {
		printCommand(arguments)
	}
	p := &process{name: name, done: make(chan struct{})}
	p.cmd = command(context.WithoutCancel(d.ctx), d.project, environment, program, arguments...) // it ends when the demo says so
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// environment is that of the person at the keyboard without settings of nf and Postgres clients: the demo uses its own. The folder of
// server binaries stays.
func (d *demo) environment(more ...string) []string {
	var kept []string
	for _, line := range os.Environ() {
		if strings.HasPrefix(line, "NF_PG_BIN=") || !strings.HasPrefix(line, "NF_") && !strings.HasPrefix(line, "PG") {
			kept = append(kept, line)
		}
	}
	return append(kept, more...)
}

// client is the environment of a person who talks to the runner.
func (d *demo) client() []string { return d.environment("NF_URL="+d.url, "NF_API_KEY="+d.key) }

func printCommand(arguments []string) {
	shown := make([]string, len(arguments))
	for i, a := range arguments {
		shown[i] = a
		if strings.ContainsAny(a, ` {}"*`) {
			shown[i] = "'" + a + "'"
		}
	}
	fmt.Println("$ nf " + strings.Join(shown, " "))
}

// show runs an nf command and shows what it prints.
func (d *demo) show(arguments ...string) error { return d.showAs(d.environment(), arguments...) }

func (d *demo) showAs(environment []string, arguments ...string) error {
	printCommand(arguments)
	cmd := command(d.ctx, d.project, environment, d.nf, append([]string{"--quiet"}, arguments...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nf %s: %w", arguments[0], err)
	}
	return nil
}

// output runs an nf command and gives what it prints.
func (d *demo) output(environment []string, arguments ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := command(d.ctx, d.project, environment, d.nf, append([]string{"--quiet"}, arguments...)...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("nf %s: %w: %s", strings.Join(arguments[:2], " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// until looks again and again until something is so. It gives up when the program that it depends on has ended, or the demo's time has.
func (d *demo) until(p *process, what string, so func() bool) error {
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for !so() {
		select {
		case <-p.done:
			p.tell(os.Stderr)
			return fmt.Errorf("%s has ended (%s) before %s", p.name, p.cmd.ProcessState, what)
		case <-d.ctx.Done():
			p.tell(os.Stderr)
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(d.ctx))
		case <-every.C:
		}
	}
	return nil
}

func (d *demo) reachable(p *process, address string) error {
	var dialer net.Dialer
	return d.until(p, "it listens on "+address, func() bool {
		c, err := dialer.DialContext(d.ctx, "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// ready asks a runner whether it serves.
func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/health/ready", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// isFree says whether the example's services can listen on an address.
func isFree(ctx context.Context, address string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the example's services need %s, and something else listens there: %w.\nStop it and run make demo again (another demo? see: lsof -i tcp:%s)",
			address, err, address[strings.LastIndexByte(address, ':')+1:])
	}
	return l.Close()
}

// freeAddress gives an address that nothing listens on.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// readDataDir reads where the private Postgres keeps its data.
func readDataDir(state string) (string, error) {
	text, err := os.ReadFile(state) //nolint:gosec // a file of the demo's folder
	if err != nil {
		return "", err
	}
	var s struct {
		DataDir string `json:"dataDir"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return "", fmt.Errorf("%s: %w", state, err)
	}
	return s.DataDir, nil
}

// cleanUp ends every program, the last one started first, and removes the folder.
func (d *demo) cleanUp() error {
	fmt.Printf("\n=== %5.1fs  clean up\n", time.Since(d.started).Seconds())
	begun := time.Now()
	err := errors.Join(d.worker.end(), d.runner.end(), d.postgres.end(), d.services.end())
	if d.dataDir != "" {
		for _, name := range []string{"postmaster.pid", filepath.Join("data", "postmaster.pid")} {
			if isFile(filepath.Join(d.dataDir, name)) {
				err = errors.Join(err, errors.New("the private Postgres still runs"))
			}
		}
		err = errors.Join(err, os.RemoveAll(d.dataDir)) // beside the project where the server's user could not enter it
	}
	err = errors.Join(err, os.RemoveAll(d.work))
	d.steps = append(d.steps, step{"clean up", time.Since(begun)})
	if err == nil {
		fmt.Println("\nno process and no file is left")
	}
	return err
}
