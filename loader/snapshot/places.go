package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Places lists the folders in which something happens when the source changes, as far as it has been read: every folder that was listed, the parent of each
// link on the way and of the project's own folder (one that is replaced is silent itself), and for what is missing the nearest parent that is there. For a
// commit they are the folders of git's own files. Sorted, each once, all of them exist or existed a moment ago.
func (s *Source) Places() []string {
	places := approach(s.dir)
	whole, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return sortedOnce(places)
	}
	places = append(places, whole)
	if top, commits, err := s.commits(); err == nil && commits {
		return sortedOnce(append(places, gitPlaces(top)...))
	}
	if top, _, found, err := InGit(s.dir); err == nil && found {
		places = append(places, gitDir(top)) // the end of what made it busy
	}
	if s.files == nil {
		return sortedOnce(places)
	}
	add := func(path string) { places = append(places, existing(filepath.Join(whole, filepath.FromSlash(path)))) }
	for dir := range s.files.lists {
		add(dir)
	}
	for path := range s.files.stats {
		add(filepath.ToSlash(filepath.Dir(filepath.FromSlash(path))))
	}
	for path := range s.files.kinds {
		add(filepath.ToSlash(filepath.Dir(filepath.FromSlash(path))))
	}
	return sortedOnce(places)
}

// approach lists the folders on the way to a folder whose entries decide where the way leads: the parent of each link, and of the last step.
func approach(dir string) []string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	var places []string
	at, todo := string(filepath.Separator), steps(abs)
	for links := 0; len(todo) > 0; {
		next := filepath.Join(at, todo[0])
		info, err := os.Lstat(next)
		if err != nil {
			return append(places, at) // it will appear here
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if len(todo) == 1 {
				places = append(places, at)
			}
			at, todo = next, todo[1:]
			continue
		}
		places = append(places, at)
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return places
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		todo = append(steps(target), todo[1:]...)
	}
	return places
}

func steps(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(s string) bool { return s == "" || s == "." })
}

// existing is a folder, or its nearest parent that is there.
func existing(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() { //nolint:gosec // looks, reads nothing
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir
		}
		dir = parent
	}
}

// gitPlaces lists the folders that change when HEAD's commit does: that of HEAD, the shared one of a linked work tree, that of the branch, and the reftable.
func gitPlaces(top string) []string {
	dir := gitDir(top)
	common := dir
	if text, err := os.ReadFile(filepath.Join(dir, "commondir")); err == nil { //nolint:gosec // a path below the checkout's git folder
		if common = firstLine(string(text)); !filepath.IsAbs(common) {
			common = filepath.Join(dir, common)
		}
	}
	places := []string{top, existing(dir), existing(common)}
	if text, err := os.ReadFile(filepath.Join(dir, "HEAD")); err == nil { //nolint:gosec // as above
		if ref, ok := strings.CutPrefix(firstLine(string(text)), "ref: "); ok && filepath.IsLocal(ref) {
			places = append(places, existing(filepath.Dir(filepath.Join(common, filepath.FromSlash(ref)))))
		}
	}
	if table := filepath.Join(common, "reftable"); existing(table) == table {
		places = append(places, table)
	}
	return places
}

func sortedOnce(places []string) []string {
	slices.Sort(places)
	return slices.Compact(places)
}
