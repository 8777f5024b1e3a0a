//go:build unix

// Command pgrun starts a private Postgres for tests, runs the command that follows with its address in NF_TEST_POSTGRES, and
// stops it:
//
//	pgrun go test ./...
//
// pgrun -where prints the folder of the server binaries that would be used, and pgrun -cache the one where `make pg` unpacks
// them if it may not install them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"nf/runtime/pgdev"
	"nf/runtime/pgdev/pgtest"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(command []string) int {
	if len(command) == 0 {
		fmt.Fprintln(os.Stderr, "usage: pgrun COMMAND [ARGUMENT…] | -where | -cache")
		return 64
	}
	switch command[0] {
	case "-where":
		found, err := pgdev.Find(context.Background(), os.Getenv("NF_PG_BIN"))
		return tell(found.Dir, err)
	case "-cache":
		return tell(pgdev.CacheDir())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := pgtest.StartServer(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 0
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), pgtest.Variable+"="+server.URL())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		code = 1
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			code = exit.ExitCode()
		} else {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "stopping Postgres:", err)
		code = max(code, 1)
	}
	return code
}

func tell(text string, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "nf:", err)
		return 1
	}
	fmt.Println(text)
	return 0
}
