// Command nf is a declarative workflow runner with a GitOps workflow.
package main

import (
	"os"

	"nf/cmd/nf/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
