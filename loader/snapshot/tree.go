package snapshot

import (
	"errors"
	"path"
	"strings"
)

// kind is what an entry of a folder is.
type kind uint8

const (
	regular kind = iota
	folder
	link
	submodule
	special // socket, pipe, device
)

// entry is one name in a folder.
type entry struct {
	name string
	kind kind
}

// tree is a source that can be listed: a folder on disk or the tree of a commit. Paths are relative to the project, clean,
// "." is the project. Methods never follow links.
type tree interface {
	list(dir string) ([]entry, error) // by name
	stat(path string) (kind, error)
	readlink(path string) (string, error)
	read(path string, limit int) ([]byte, error) // errTooLarge beyond limit
}

var (
	errMissing  = errors.New("does not exist")
	errTooLarge = errors.New("is too large")
	errLeaves   = errors.New("leaves the project")
	errLoop     = errors.New("is a loop of links")
)

// maxLinks bounds how many links one path may go through.
const maxLinks = 40

// resolve follows all links in a path, step by step, and never out of the project. It gives the dest path.
func resolve(t tree, name string) (string, kind, error) {
	todo := strings.Split(path.Clean(name), "/")
	dest, links := ".", 0
	k := folder
	for len(todo) > 0 {
		step := todo[0]
		todo = todo[1:]
		switch step {
		case ".", "":
			continue
		case "..":
			if dest == "." {
				return "", 0, errLeaves
			}
			dest, k = path.Dir(dest), folder
			continue
		}
		next := path.Join(dest, step)
		var err error
		if k, err = t.stat(next); err != nil {
			return "", 0, err
		}
		if k != link {
			dest = next
			continue
		}
		if links++; links > maxLinks {
			return "", 0, errLoop
		}
		target, err := t.readlink(next)
		if err != nil {
			return "", 0, err
		}
		if path.IsAbs(target) || target == "" {
			return "", 0, errLeaves
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return dest, k, nil
}

// local cleans a path that an author wrote. It says false if the path is not inside the project by its spelling.
func local(name string) (string, bool) {
	if name == "" || path.IsAbs(name) || strings.ContainsAny(name, "\\\x00") {
		return "", false
	}
	clean := path.Clean(name)
	return clean, clean != ".." && !strings.HasPrefix(clean, "../")
}
