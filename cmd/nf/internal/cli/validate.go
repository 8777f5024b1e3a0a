package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/schema/diag"
)

func (sh *shell) validateCommand() *cli.Command {
	return &cli.Command{
		Name: "validate", Aliases: []string{"check"}, Usage: "check the files of a project", ArgsUsage: "[PATH…]", Action: sh.action(0, -1, "", sh.validate),
	}
}

// validate checks the files: those of the project, or with paths those of the projects that hold them, told for these paths only.
func (sh *shell) validate() error {
	scopes, err := sh.scopes(sh.c.Args().Slice())
	if err != nil {
		return err
	}
	all := checked{}
	sources := map[string][]byte{}
	for _, s := range scopes {
		p, err := readProject(sh.ctx(), s.dir, fromFiles)
		if err != nil {
			return err
		}
		all.files += p.files()
		all.objects += p.bundle.Declared
		for _, f := range p.findings {
			if !s.covers(f.File) {
				continue
			}
			text, ok := p.bundle.Source(f.File)
			if len(scopes) > 1 {
				f.File = filepath.ToSlash(filepath.Join(s.shown, f.File))
			}
			if ok {
				sources[f.File] = text
			}
			all.findings = append(all.findings, f)
		}
	}
	all.source = func(file string) ([]byte, bool) { text, ok := sources[file]; return text, ok }
	if err := sh.tellFindings(all); err != nil {
		return err
	}
	sh.helpEmptyFolder(all)
	return quiet(codeOfFindings(all.findings))
}

// scope is a project with the paths in it that findings are wanted of.
type scope struct {
	dir   string // absolute
	shown string // relative to the current folder
	paths []string
}

// covers says whether findings of a file are wanted. Those of nf.yaml itself always are: nothing can be read without it.
func (s scope) covers(file string) bool {
	return len(s.paths) == 0 || file == "" || slices.ContainsFunc(s.paths, func(path string) bool {
		return path == "." || file == path || strings.HasPrefix(file, path+"/")
	})
}

// scopes finds the projects of paths: the nearest nf.yaml at or above each.
func (sh *shell) scopes(paths []string) ([]scope, error) {
	if len(paths) == 0 {
		return []scope{{dir: sh.settings.folder()}}, nil
	}
	var all []scope
	for _, path := range paths {
		abs := path
		if !filepath.IsAbs(path) {
			abs = filepath.Join(sh.settings.workDir, path)
		}
		info, err := os.Stat(abs)
		if err != nil {
			return nil, fail("%w", err)
		}
		start := abs
		if !info.IsDir() {
			start = filepath.Dir(abs)
		}
		dir := findProject(start)
		if dir == "" {
			dir = start
		}
		inside, err := filepath.Rel(dir, abs)
		if err != nil {
			return nil, fail("%s: %w", path, err)
		}
		shown, err := filepath.Rel(sh.settings.workDir, dir)
		if err != nil {
			return nil, fail("%s: %w", path, err)
		}
		i := slices.IndexFunc(all, func(s scope) bool { return s.dir == dir })
		if i < 0 {
			i, all = len(all), append(all, scope{dir: dir, shown: shown})
		}
		all[i].paths = append(all[i].paths, filepath.ToSlash(inside))
	}
	return all, nil
}

// helpEmptyFolder shows a minimal nf.yaml where there is none.
func (sh *shell) helpEmptyFolder(c checked) {
	none := slices.ContainsFunc(c.findings, func(f diag.Diagnostic) bool {
		_, there := c.source(f.File)
		return f.Code == "NF7001" && !there
	})
	if none && sh.settings.output == "text" {
		sh.say("%s", view.MinimalProject)
	}
}
