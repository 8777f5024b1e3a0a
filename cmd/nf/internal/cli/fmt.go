package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/loader"
	"nf/loader/format"
	"nf/loader/snapshot"
)

func (sh *shell) fmtCommand() *cli.Command {
	return &cli.Command{
		Name: "fmt", Usage: "write manifests in the common form; keeps comments and what they mean", ArgsUsage: "[PATH…]",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "check", Usage: "write nothing; exit 3 and list the files that are not formatted"},
			&cli.BoolFlag{Name: "diff", Usage: "write nothing; show what would change"},
		},
		Action: sh.action(0, -1, "", sh.format),
	}
}

// format formats the files of the project, or of paths.
func (sh *shell) format() error {
	scopes, err := sh.scopes(sh.c.Args().Slice())
	if err != nil {
		return err
	}
	only := sh.c.Bool("check") || sh.c.Bool("diff")
	var changed []string
	broken, seen := 0, 0
	for _, s := range scopes {
		snap, err := loader.ReadDir(s.dir)
		if err != nil {
			return sourceError(err)
		}
		for _, f := range snap.Files {
			if f.Named || !s.covers(f.Path) {
				continue
			}
			seen++
			out, err := format.Source(f.Path, f.Data)
			shown := filepath.ToSlash(filepath.Join(s.shown, f.Path))
			if errors.Is(err, format.ErrBroken) {
				broken++
				sh.say("%s: %v", view.Safe(shown), err)
				continue
			}
			if err != nil {
				return fail("%s: %w", shown, err)
			}
			if string(out) == string(f.Data) {
				continue
			}
			changed = append(changed, shown)
			if only {
				continue
			}
			if err := rewrite(filepath.Join(s.dir, filepath.FromSlash(f.Path)), out); err != nil {
				return fail("%w", err)
			}
		}
		if sh.c.Bool("diff") {
			sh.showDiffs(s, snap)
		}
	}
	if seen == 0 {
		return (&exitError{code: exitFindings, message: "no manifest was found"}).hinted("paths must lie in a project: a folder with an nf.yaml at or above them")
	}
	return sh.tellFormatted(changed, broken, only)
}

// tellFormatted lists what was or would be written.
func (sh *shell) tellFormatted(changed []string, broken int, only bool) error {
	if sh.settings.output == "json" {
		if err := sh.json(map[string]any{"format_version": view.FormatVersion, "changed": append([]string{}, changed...), "broken": broken}); err != nil {
			return err
		}
	} else if !sh.c.Bool("diff") {
		for _, name := range changed {
			sh.print(view.Safe(name) + "\n")
		}
	}
	if broken > 0 || sh.c.Bool("check") && len(changed) > 0 {
		return quiet(exitFindings)
	}
	return nil
}

// showDiffs prints what formatting would change.
func (sh *shell) showDiffs(s scope, snap snapshot.Snapshot) {
	for _, f := range snap.Files {
		if f.Named || !s.covers(f.Path) {
			continue
		}
		out, err := format.Source(f.Path, f.Data)
		if err != nil || string(out) == string(f.Data) {
			continue
		}
		name := filepath.ToSlash(filepath.Join(s.shown, f.Path))
		sh.show(view.SafeLines(strings.ReplaceAll(udiff.Unified("a/"+name, "b/"+name, string(f.Data), string(out)), "\r\n", "\n")))
	}
}

// rewrite replaces a file's text and keeps its mode; through a link, the file that it leads to.
func rewrite(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replaceFile(path, text, info.Mode().Perm())
}
