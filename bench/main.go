package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
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
