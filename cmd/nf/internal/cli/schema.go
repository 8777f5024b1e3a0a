package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/spec"
)

// schemaFile is where editors find the schema, below the project's folder. nf reads none of it.
const schemaFile = ".nf/schema/nf.json"

func (sh *shell) schemaCommand() *cli.Command {
	return &cli.Command{Name: "schema", Usage: "the JSON Schema of manifests, for editors", Subcommands: []*cli.Command{
		{Name: "print", Usage: "print the schema of all kinds, or of one", ArgsUsage: "[KIND]", Action: sh.action(0, 1, "a kind", sh.schemaPrint)},
		{Name: "write", Usage: "write " + schemaFile + ", which the modeline of nf new names", Action: sh.action(0, 0, "", sh.schemaWrite)},
	}}
}

func (sh *shell) schemaPrint() error {
	var kinds []schema.Kind
	if name := sh.c.Args().First(); name != "" {
		if !slices.Contains(schema.Kinds(), schema.Kind(name)) {
			return usage("unknown kind %q", name).hinted("%s", didYouMeanKind(name))
		}
		kinds = append(kinds, schema.Kind(name))
	}
	text, err := spec.Bundle(kinds...)
	if err != nil {
		return fail("schemas: %w", err)
	}
	sh.print(string(text) + "\n")
	return nil
}

func (sh *shell) schemaWrite() error {
	if sh.settings.projectDir == "" {
		return fail("there is no nf.yaml here or above").hinted("nf init makes a project")
	}
	changed, err := writeSchema(sh.settings.projectDir)
	if err != nil {
		return fail("%w", err)
	}
	if changed {
		sh.say("wrote %s: commit it, so that editors find it", schemaFile)
	} else {
		sh.say("%s is up to date", schemaFile)
	}
	return nil
}

// writeSchema writes the schema of all kinds, and keeps the data of nf dev out of git. It says whether anything changed.
func writeSchema(dir string) (bool, error) {
	text, err := spec.Bundle()
	if err != nil {
		return false, err
	}
	text = append(text, '\n')
	path := filepath.Join(dir, filepath.FromSlash(schemaFile))
	old, err := os.ReadFile(path) //nolint:gosec // below the project's own folder
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a folder of the checkout
		return false, err
	}
	ignore := filepath.Join(dir, ".nf", ".gitignore")
	if _, err := os.Lstat(ignore); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(ignore, []byte("/dev/\n"), 0o644); err != nil { //nolint:gosec // a file of the checkout
			return false, err
		}
	}
	return true, replaceFile(path, text, 0o644)
}

// replaceFile writes a file in one step: readers see the old text or the new one.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(mode), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

func didYouMeanKind(name string) string {
	var kinds []string
	for _, k := range schema.Kinds() {
		kinds = append(kinds, string(k))
	}
	return diag.DidYouMean(name, kinds)
}
