package snapshot

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// changed lists the files of the project, at most MaxChanged, in which the work tree differs from the commit. Only files
// that a load reads count; line ends do not, nor do new files that git ignores.
//
// The work tree is read by nf itself. `git diff-index` must not be asked: it looks into a file whose time stamp is not older
// than the index, and then runs the clean filter that the checkout's own configuration names.
func (g *checkout) changed(ctx context.Context, snap Snapshot, sel Selection) ([]string, error) {
	root, err := os.OpenRoot(filepath.Join(g.top, filepath.FromSlash(g.prefix)))
	if err != nil {
		return []string{ProjectFile}, nil // the folder is gone from the work tree: an answer, not a fault
	}
	defer root.Close() //nolint:errcheck // opened for reading
	work := readTree(newDirTree(root), sel, DefaultLimits())
	var found, added []string
	if !sameText(snap.Project, work.Project) {
		found = append(found, ProjectFile)
	}
	if !sameText(snap.ignoreText, work.ignoreText) {
		found = append(found, IgnoreFile)
	}
	for _, f := range snap.Files {
		if now, ok := work.File(f.Path); !ok || !sameText(f.Data, now) {
			found = append(found, f.Path)
		}
	}
	for _, f := range work.Files {
		if _, ok := snap.File(f.Path); !ok {
			added = append(added, f.Path)
		}
	}
	if len(added) > 0 {
		if added, err = g.notIgnored(ctx, added); err != nil {
			return nil, err
		}
	}
	found = append(found, added...)
	sort.Strings(found)
	return found[:min(len(found), MaxChanged)], nil
}

// notIgnored drops the paths that git ignores.
func (g *checkout) notIgnored(ctx context.Context, added []string) ([]string, error) {
	args := []string{"--others", "--ignored", "--exclude-standard", "--full-name", "-z", "--"}
	prefix := ""
	if g.prefix != "" {
		prefix = g.prefix + "/"
		args = append(args, prefix)
	}
	out, err := g.run(ctx, "ls-files", args...)
	if err != nil {
		return nil, g.explain(err)
	}
	ignored := map[string]bool{}
	for name := range strings.SplitSeq(out, "\x00") {
		ignored[name] = true
	}
	var kept []string
	for _, p := range added {
		if !ignored[prefix+p] {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// sameText compares two files, line ends aside: what a checkout writes depends on core.autocrlf.
func sameText(a, b []byte) bool {
	return (a == nil) == (b == nil) && (bytes.Equal(a, b) || bytes.Equal(unixLines(a), unixLines(b)))
}

func unixLines(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }
