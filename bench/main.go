package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "out/results.json", "where the results go")
	rounds := flag.Int("rounds", 5, "runs of each side")
	scale := flag.Float64("scale", 1, "factor of all sizes; below 1 for a quick look")
	only := flag.String("only", "", "measures whose name matches this pattern")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process, nf and its peer alike, to this file")
	flag.Parse()
	which, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop(context.WithoutCancel(ctx))
	if *profile != "" {
		end, err := profiled(*profile)
		if err != nil {
			return err
		}
		defer end()
	}
	var results []result
	for _, m := range measures() {
		if !which.MatchString(m.name) {
			continue
		}
		r, err := m.take(ctx, server, *rounds, *scale)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Println(r)
		results = append(results, r)
	}
	return write(*out, results)
}

// profiled begins a CPU profile and gives what ends it.
func profiled(path string) (end func(), err error) {
	file, err := os.Create(path) //nolint:gosec // the person's own file
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

func write(path string, results []result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
