package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"time"

	"nf/loader"
	"nf/loader/plan"
	"nf/loader/snapshot"
	"nf/schema/diag"
	"nf/schema/spec"
)

// project is what was read of one project.
type project struct {
	dir      string
	bundle   loader.Bundle
	findings diag.List
	parents  []string  // of the commit that was read
	at       time.Time // of that commit; zero = unknown
	changed  []string  // paths in which the work tree differs from the commit that was read
}

// readFrom says what of a project's folder is read (P11).
type readFrom int

const (
	fromFiles  readFrom = iota // what stands in the folder
	fromCommit                 // HEAD's blobs in a git checkout, the files elsewhere
)

// readProject reads and checks the project of a folder. What is wrong with its content stands in the findings; the error is for a source that cannot be
// read at all.
func readProject(ctx context.Context, dir string, from readFrom) (project, error) {
	p := project{dir: dir}
	snap, err := readSource(ctx, dir, from)
	if err != nil {
		return p, sourceError(err)
	}
	validator, err := spec.Compile()
	if err != nil {
		return p, fail("schemas: %w", err)
	}
	p.bundle, p.findings = loader.Load(ctx, snap, validator)
	p.changed, p.parents, p.at = snap.Changed, snap.Parents, snap.CommittedAt
	return p, nil
}

func readSource(ctx context.Context, dir string, from readFrom) (snapshot.Snapshot, error) {
	if from == fromCommit {
		_, _, found, err := snapshot.InGit(dir)
		if err != nil {
			return snapshot.Snapshot{}, err
		}
		if found {
			return loader.ReadGit(ctx, dir)
		}
	}
	return loader.ReadDir(dir)
}

// sourceError gives the exit of a source that could not be read.
func sourceError(err error) error {
	var git *snapshot.GitError
	switch {
	case errors.As(err, &git):
		e := fail("%w", err)
		if git.Mend != "" && !strings.Contains(e.message, git.Mend) {
			e.hint = git.Mend
		}
		return e
	case errors.Is(err, snapshot.ErrBusy):
		return &exitError{code: exitStale, message: err.Error(), cause: err}
	}
	return fail("%w", err)
}

// name is that of the project, "" if nf.yaml could not be read.
func (p *project) name() string {
	if p.bundle.Project == nil {
		return ""
	}
	return p.bundle.Project.Metadata.Name
}

// files counts the files that were checked: the manifests, and nf.yaml where there is one.
func (p *project) files() int {
	if _, there := p.bundle.Source(snapshot.ProjectFile); there {
		return p.bundle.Files + 1
	}
	return p.bundle.Files
}

// input is the project's part of a plan. A project without any manifest is planned too: the guards of P9 judge it.
func (p *project) input(env environ) plan.Input {
	in := plan.Input{
		Project: p.name(), NFVersion: Version, Desired: p.bundle.Set, Origins: p.bundle.Origins, Locate: p.bundle.Locate,
		Source: plan.Source{
			Commit: p.bundle.Commit, Branch: p.bundle.Branch, Dirty: p.bundle.Dirty, Digest: "sha256:" + hex.EncodeToString(p.bundle.Digest[:]),
		},
		Findings: p.findings,
	}
	if in.Source.Commit == "" {
		if _, _, found, err := snapshot.InGit(p.dir); err == nil && !found {
			in.Source.Commit, in.Source.Branch = env["NF_COMMIT"], env["NF_BRANCH"]
		}
	}
	return in
}

// ordered adds what the order of commits is decided from (P11). Where there are no commits, the digest of the source stands for one.
func (p *project) ordered(ctx context.Context, in plan.Input, rewind bool) plan.Input {
	mine := in.Source.Commit
	if mine == "" {
		mine = in.Source.Digest
	}
	in.Order = &plan.OrderFacts{Mine: mine, CommittedAt: p.at, Parents: p.parents, Rewind: rewind}
	known := map[string]plan.Ancestry{}
	in.Ancestry = func(inForce string) plan.Ancestry {
		a, asked := known[inForce]
		if !asked {
			a = ancestryOf(snapshot.GitAncestry(ctx, p.dir, mine, inForce))
			known[inForce] = a
		}
		return a
	}
	return in
}

func ancestryOf(a snapshot.Ancestry) plan.Ancestry {
	truth := func(known *bool) plan.Truth {
		switch {
		case known == nil:
			return plan.Unknown
		case *known:
			return plan.Yes
		}
		return plan.No
	}
	return plan.Ancestry{InForceIsMine: truth(a.OtherIsMine), MineIsInForce: truth(a.MineIsOther)}
}

// warnDirty says that what is read is the commit, not the files.
func (sh *shell) warnDirty(p *project) {
	if !p.bundle.Dirty {
		return
	}
	shown := p.changed
	more := ""
	if len(shown) > 5 {
		shown, more = shown[:5], ", …"
	}
	sh.say("warning: HEAD is read, not the files: uncommitted changes are left out (%s%s); commit them first", strings.Join(shown, ", "), more)
}

// folder is that of the project, or where one was looked for.
func (s *settings) folder() string {
	if s.projectDir != "" {
		return s.projectDir
	}
	return s.workDir
}

// sourceOf says what is read against a database: the private one of nf dev is planned from the files.
func sourceOf(s *settings, db setting, source string) (readFrom, error) {
	switch source {
	case "", "auto":
		if db.from == fromState || s.projectDir == "" {
			return fromFiles, nil
		}
		return fromCommit, nil
	case "dir":
		return fromFiles, nil
	case "git":
		if _, _, found, err := snapshot.InGit(s.folder()); err == nil && !found {
			return fromFiles, usage("--source git: %s is in no git checkout", s.folder()).hinted("leave --source out, or run: git init")
		}
		return fromCommit, nil
	}
	return fromFiles, usage("--source %q is not known", source).hinted("use auto, git or dir")
}

// isFolder says whether a path is a folder.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
