package snapshot

import (
	"errors"
	"path"
	"sort"
	"strconv"
	"strings"
)

// reader applies a Selection to a tree.
type reader struct {
	tree   tree
	sel    Selection
	limits Limits
	ignore ignore

	snap    Snapshot
	folders map[string]bool // dest folders walked
	reals   map[string]bool // real files read
	paths   map[string]bool // paths in snap.Files
	links   []walked        // met on the way, followed at the end
	bytes   int64
	full    bool
}

// walked is a place: the path by which it was reached and the dest one.
type walked struct{ path, real string }

// readTree reads a project out of a tree.
func readTree(t tree, sel Selection, limits Limits) Snapshot {
	r := &reader{tree: t, sel: sel, limits: limits, folders: map[string]bool{}, reals: map[string]bool{}, paths: map[string]bool{}}
	if r.projectFile() {
		r.readIgnore()
		for i, root := range r.roots() {
			before := len(r.snap.Findings)
			r.root(root)
			for j := before; j < len(r.snap.Findings); j++ {
				if f := &r.snap.Findings[j]; f.File == ProjectFile {
					f.Pointer = "/spec/roots/" + strconv.Itoa(i) // the loader knows where that stands
				}
			}
		}
		r.followLinks()
		r.followNames()
	}
	r.snap.seal()
	return r.snap
}

func (r *reader) report(code, path, hint, format string, args ...any) {
	r.snap.Findings = append(r.snap.Findings, finding(diagCode(code), path, hint, format, args...))
}

// projectFile reads nf.yaml.
func (r *reader) projectFile() bool {
	dest, k, err := resolve(r.tree, ProjectFile)
	switch {
	case errors.Is(err, errMissing):
		hint := "write one: {apiVersion: nf/v1, kind: Project, metadata: {name: my-project}}"
		if _, err := r.tree.stat("nf.yml"); err == nil {
			hint = "rename nf.yml to nf.yaml"
		}
		r.report("NF7001", ProjectFile, hint, "there is no nf.yaml in the project's folder")
		return false
	case errors.Is(err, errLeaves):
		r.report("NF7003", ProjectFile, "replace the link by the file", "link leaves the project")
		return false
	case err != nil:
		r.report("NF1001", ProjectFile, "", "file cannot be read: %v", err)
		return false
	case k != regular:
		r.report("NF1001", ProjectFile, "", "nf.yaml is no file")
		return false
	}
	data, err := r.tree.read(dest, r.limits.FileBytes)
	if err != nil {
		r.unreadable(ProjectFile, err, r.limits.FileBytes)
		return false
	}
	if data == nil {
		data = []byte{}
	}
	r.snap.Project = data
	r.reals[dest] = true
	return true
}

func (r *reader) readIgnore() {
	k, err := r.tree.stat(IgnoreFile)
	if err != nil {
		if !errors.Is(err, errMissing) {
			r.report("NF1001", IgnoreFile, "", "file cannot be read: %v", err)
		}
		return
	}
	if k != regular {
		r.report("NF1001", IgnoreFile, "", ".nfignore is no regular file")
		return
	}
	data, err := r.tree.read(IgnoreFile, r.limits.FileBytes)
	if err != nil {
		r.unreadable(IgnoreFile, err, r.limits.FileBytes)
		return
	}
	r.snap.ignoreText, r.ignore = data, parseIgnore(data)
}

func (r *reader) roots() []string {
	var roots []string
	if r.sel.Roots != nil {
		roots = r.sel.Roots(r.snap.Project)
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	return roots
}

// root walks one root. Unlike anything below it, it may have a hidden name: the author named it.
func (r *reader) root(name string) {
	clean, ok := local(name)
	if !ok {
		r.report("NF7002", ProjectFile, "name a folder inside the project", "root %q is not inside the project", name)
		return
	}
	dest, k, err := resolve(r.tree, clean)
	switch {
	case errors.Is(err, errLeaves):
		r.report("NF7003", clean, "name a folder inside the project", "root %q is a link that leaves the project", name)
	case errors.Is(err, errMissing):
		r.report("NF7002", ProjectFile, "create the folder, or take it out of spec.roots", "root %q does not exist", name)
	case err != nil:
		r.report("NF7002", ProjectFile, "", "root %q cannot be read: %v", name, err)
	case k == submodule:
		r.submodule(clean)
	case k != folder:
		r.report("NF7002", ProjectFile, "name a folder", "root %q is no folder", name)
	default:
		r.snap.Roots = append(r.snap.Roots, clean)
		r.walk(walked{clean, dest})
	}
}

func (r *reader) submodule(path string) {
	r.report("NF7002", path, "keep it outside of the roots or name it in .nfignore; nf reads what the commit itself holds",
		"folder is a git submodule, whose files are no part of the commit")
}

// walk reads the manifests of a folder and below. Links wait until all dest folders were seen, so that a file is read under
// its own name where it has one.
func (r *reader) walk(at walked) {
	if r.folders[at.real] || r.full {
		return
	}
	r.folders[at.real] = true
	entries, err := r.tree.list(at.real)
	if err != nil {
		r.report("NF7002", at.path, "", "folder cannot be read: %v", err)
		return
	}
	for _, e := range entries {
		p := walked{path.Join(at.path, e.name), path.Join(at.real, e.name)}
		if hidden(e.name) || r.ignore.skips(p.path, e.kind == folder || e.kind == submodule) {
			continue
		}
		switch e.kind {
		case folder:
			r.walk(p)
		case link:
			r.links = append(r.links, p)
		case submodule:
			r.submodule(p.path)
		case special:
			if manifest(e.name) {
				r.report("NF1001", p.path, "remove it, or name it in .nfignore", "file is no regular file")
			}
		case regular:
			if manifest(e.name) {
				r.read(p, false)
			}
		case missing: // gone since it was listed
		}
	}
}

// followLinks follows the links inside the roots, each dest place once.
func (r *reader) followLinks() {
	for len(r.links) > 0 {
		batch := r.links
		r.links = nil
		sort.Slice(batch, func(i, j int) bool { return batch[i].path < batch[j].path })
		for _, l := range batch {
			r.followLink(l)
		}
	}
}

func (r *reader) followLink(l walked) {
	// A link to something that is no manifest by its name does not matter, wherever it leads.
	matters := manifest(l.path) || path.Ext(l.path) == ""
	dest, k, err := resolve(r.tree, l.real)
	switch {
	case err != nil && !matters:
	case errors.Is(err, errLeaves):
		r.report("NF7003", l.path, "replace the link by what it leads to, or name it in .nfignore", "link leaves the project")
	case errors.Is(err, errMissing):
		r.report("NF1001", l.path, "mend or remove the link, or name it in .nfignore", "link leads nowhere")
	case err != nil:
		r.report("NF1001", l.path, "mend or remove the link, or name it in .nfignore", "link %v", err)
	case k == submodule:
		r.submodule(l.path)
	case k == folder:
		if !r.ignore.skips(l.path, true) {
			r.walk(walked{l.path, dest})
		}
	case k == regular && manifest(l.path):
		r.read(walked{l.path, dest}, false)
	case k == special && manifest(l.path):
		r.report("NF1001", l.path, "remove it, or name it in .nfignore", "file is no regular file")
	}
}

// read takes one file in.
func (r *reader) read(at walked, named bool) {
	if r.full || r.paths[at.path] || !named && r.reals[at.real] {
		return
	}
	limit := r.limits.FileBytes
	if named {
		limit = r.limits.NamedBytes
	}
	if len(r.snap.Files) >= r.limits.Files {
		r.full = true
		r.report("NF1016", at.path, "narrow spec.roots, or name folders in .nfignore", "project has more files than the limit files = %d", r.limits.Files)
		return
	}
	data, err := r.tree.read(at.real, limit)
	if err != nil {
		r.unreadable(at.path, err, limit)
		return
	}
	if r.bytes += int64(len(data)); r.bytes > r.limits.TotalBytes {
		r.full = true
		r.report("NF1016", at.path, "narrow spec.roots, or name folders in .nfignore", "project has more bytes than the limit totalBytes = %d", r.limits.TotalBytes)
		return
	}
	r.paths[at.path] = true
	r.reals[at.real] = true
	r.snap.Files = append(r.snap.Files, File{Path: at.path, Data: data, Named: named})
}

func (r *reader) unreadable(path string, err error, limit int) {
	if errors.Is(err, errTooLarge) {
		r.report("NF1016", path, "split the file into several", "file has more bytes than the limit %d", limit)
		return
	}
	r.report("NF1001", path, "", "file cannot be read: %v", err)
}

// followNames reads the files that manifests name, and the files that those name.
func (r *reader) followNames() {
	if r.sel.Follow == nil {
		return
	}
	sort.Slice(r.snap.Files, func(i, j int) bool { return r.snap.Files[i].Path < r.snap.Files[j].Path })
	asked := map[string]bool{}
	for i := 0; i < len(r.snap.Files); i++ {
		for _, name := range r.sel.Follow(r.snap.Files[i].Path, r.snap.Files[i].Data) {
			if !asked[name] {
				asked[name] = true
				r.named(name)
			}
		}
	}
}

// named reads a file that a manifest names, or the proto files of a folder. What is missing is for the loader to say, at
// the place that names it.
func (r *reader) named(name string) {
	clean, ok := local(name)
	if !ok {
		return
	}
	dest, k, err := resolve(r.tree, clean)
	switch {
	case errors.Is(err, errLeaves):
		r.report("NF7003", clean, "copy the file into the project", "link leaves the project")
	case err != nil:
	case k == folder && strings.HasSuffix(name, "/"):
		r.protoFolder(walked{clean, dest}, map[string]bool{})
	case k == regular:
		r.read(walked{clean, dest}, true)
	}
}

func (r *reader) protoFolder(at walked, seen map[string]bool) {
	if seen[at.real] {
		return
	}
	seen[at.real] = true
	entries, err := r.tree.list(at.real)
	if err != nil {
		r.report("NF7002", at.path, "", "folder cannot be read: %v", err)
		return
	}
	for _, e := range entries {
		p := walked{path.Join(at.path, e.name), path.Join(at.real, e.name)}
		switch {
		case e.kind == folder && !hidden(e.name):
			r.protoFolder(p, seen)
		case strings.HasSuffix(e.name, ".proto"):
			r.named(p.path)
		}
	}
}
