package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// gitOptions stand before every command. They switch off what a configuration inside the checkout could make git run: a
// repository that is no `.git` entry, the file system monitor, hooks, any transport, and files outside that it would read.
var gitOptions = [...]string{
	"--no-pager", "--no-optional-locks",
	"-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never",
	"-c", "core.untrackedCache=false", "-c", "core.excludesFile=/dev/null", "-c", "core.attributesFile=/dev/null",
}

// gitCommands are the only commands that are called. None of them looks into a file of the work tree.
var gitCommands = map[string]bool{"rev-parse": true, "cat-file": true, "ls-tree": true, "ls-files": true, "merge-base": true}

// maxStderr bounds what is kept of git's error text.
const maxStderr = 4 << 10

// runError is a git command that ended with an error.
type runError struct {
	command string
	stderr  string
	err     error
}

func (e *runError) Error() string {
	return fmt.Sprintf("git %s: %v: %s", e.command, e.err, firstLine(e.stderr))
}

func (e *runError) Unwrap() error { return e.err }

// findProgram finds git on the PATH; a git in the working folder is never taken.
func findProgram() (string, error) { return exec.LookPath("git") }

// command prepares a git command in the checkout.
func (g *checkout) command(ctx context.Context, name string, args ...string) (*exec.Cmd, *limitedText, error) {
	if !gitCommands[name] {
		return nil, nil, fmt.Errorf("git %s is not among the commands that are called", name)
	}
	cmd := exec.CommandContext(ctx, g.program, slices.Concat(gitOptions[:], []string{"-C", g.top, name}, args)...) //nolint:gosec // fixed options, a checked command, hashes and literal paths
	cmd.Env = gitEnv(cmd.Environ(), g.top)
	cmd.WaitDelay = 5 * time.Second
	stderr := &limitedText{max: maxStderr}
	cmd.Stderr = stderr
	return cmd, stderr, nil
}

// gitEnv gives the environment of git: the caller's without any GIT_ variable, and what keeps git from fetching, asking,
// taking paths for patterns, and looking for a repository above the checkout.
func gitEnv(environ []string, top string) []string {
	env := make([]string, 0, len(environ)+8)
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		switch upper := strings.ToUpper(name); {
		case strings.HasPrefix(upper, "GIT_"), upper == "LANGUAGE", upper == "LANG", strings.HasPrefix(upper, "LC_"):
		default:
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_LITERAL_PATHSPECS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_TERMINAL_PROMPT=0", "GIT_ATTR_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+filepath.Dir(top))
}

// run calls git and gives what it printed.
func (g *checkout) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd, stderr, err := g.command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("git %s: %w", name, ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), &runError{name, stderr.String(), err}
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", name, err)
	}
	return string(out), nil
}

// limitedText keeps the first bytes written to it.
type limitedText struct {
	bytes.Buffer
	max int
}

func (l *limitedText) Write(p []byte) (int, error) {
	if room := l.max - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
