package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"sort"
	"strconv"
	"strings"
)

// commitTree is the part of a commit's tree that belongs to the project. Blobs come from one `git cat-file --batch`.
type commitTree struct {
	commit  string
	kinds   map[string]kind
	hashes  map[string]string
	folders map[string][]entry

	cmd    *exec.Cmd
	stderr *limitedText
	in     io.WriteCloser
	out    *bufio.Reader
	fault  error // of the batch process; ends the read

	known, used map[string][]byte // blobs of an earlier read, and those of this one, by hash
}

// tree lists the project's part of a commit and starts the process that reads its blobs.
func (g *checkout) tree(ctx context.Context, ref, commit string) (*commitTree, error) {
	args := []string{"-r", "-z", "--full-tree", commit}
	if g.prefix != "" {
		args = append(args, "--", g.prefix+"/")
	}
	out, err := g.run(ctx, "ls-tree", args...)
	if err != nil {
		return nil, g.explain(err)
	}
	t := &commitTree{commit: commit, kinds: map[string]kind{".": folder}, hashes: map[string]string{}, folders: map[string][]entry{".": nil}}
	for line := range strings.SplitSeq(out, "\x00") {
		t.add(line, g.prefix)
	}
	if _, has := t.kinds[ProjectFile]; !has {
		return nil, g.lacks(ref)
	}
	for _, entries := range t.folders {
		sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	}
	if t.cmd, t.stderr, err = g.command(ctx, "cat-file", "--batch"); err != nil {
		return nil, err
	}
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	stdout, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	t.out = bufio.NewReaderSize(stdout, 64<<10)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	return t, nil
}

// add takes one line of ls-tree: mode, type, hash, tab, path.
func (t *commitTree) add(line, prefix string) {
	head, name, ok := strings.Cut(line, "\t")
	fields := strings.Fields(head)
	if !ok || len(fields) != 3 || !isHash(fields[2]) {
		return
	}
	if prefix != "" {
		if name, ok = strings.CutPrefix(name, prefix+"/"); !ok {
			return
		}
	}
	k := regular
	switch {
	case fields[0] == "120000":
		k = link
	case fields[1] == "commit":
		k = submodule
	case fields[1] != "blob":
		return
	}
	t.kinds[name], t.hashes[name] = k, fields[2]
	for at := name; at != "."; {
		dir := path.Dir(at)
		_, known := t.folders[dir]
		t.folders[dir] = append(t.folders[dir], entry{path.Base(at), k})
		if known {
			break
		}
		t.kinds[dir] = folder
		at, k = dir, folder
	}
}

func (t *commitTree) list(dir string) ([]entry, error) {
	entries, ok := t.folders[dir]
	if !ok {
		return nil, errMissing
	}
	return entries, nil
}

func (t *commitTree) stat(path string) (kind, error) {
	k, ok := t.kinds[path]
	if !ok {
		return 0, errMissing
	}
	return k, nil
}

func (t *commitTree) readlink(path string) (string, error) {
	data, err := t.read(path, 4096)
	return string(data), err
}

func (t *commitTree) read(path string, limit int) ([]byte, error) {
	hash, ok := t.hashes[path]
	if !ok {
		return nil, errMissing
	}
	if text, ok := t.known[hash]; ok && len(text) <= limit {
		t.used[hash] = text
		return text, nil
	}
	text, err := t.object(hash, limit)
	if err == nil && t.used != nil {
		t.used[hash] = text
	}
	return text, err
}

// object reads one object. A blob over the limit is read past.
func (t *commitTree) object(hash string, limit int) ([]byte, error) {
	if t.fault != nil {
		return nil, t.fault
	}
	data, err := t.ask(hash, limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		t.fault = err
	}
	return data, err
}

func (t *commitTree) ask(hash string, limit int) ([]byte, error) {
	if _, err := io.WriteString(t.in, hash+"\n"); err != nil {
		return nil, fmt.Errorf("asking git cat-file: %w", err)
	}
	head, err := t.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("reading git cat-file: %w", err)
	}
	fields := strings.Fields(head)
	if len(fields) == 2 && fields[1] == "missing" {
		return nil, &GitError{What: "object " + hash + " of the commit is missing in this clone", Mend: "run: git fetch --refetch"}
	}
	if len(fields) != 3 || fields[0] != hash {
		return nil, fmt.Errorf("git cat-file answered %q for %s", firstLine(head), hash)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return nil, fmt.Errorf("git cat-file answered %q for %s", firstLine(head), hash)
	}
	if size > int64(limit) {
		if _, err := io.CopyN(io.Discard, t.out, size+1); err != nil {
			return nil, fmt.Errorf("reading git cat-file: %w", err)
		}
		return nil, errTooLarge
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(t.out, data); err != nil {
		return nil, fmt.Errorf("reading git cat-file: %w", err)
	}
	return data[:size], nil
}

// maxCommit bounds a commit object.
const maxCommit = 1 << 20

// snapshot reads the selected files and ends the process.
func (t *commitTree) snapshot(sel Selection) (Snapshot, error) {
	snap := readTree(t, sel, DefaultLimits())
	text, err := t.object(t.commit, maxCommit)
	if t.fault == nil && err != nil {
		t.fault = fmt.Errorf("reading commit %s: %w", t.commit, err)
	}
	closing := t.in.Close()
	waited := t.cmd.Wait()
	if t.fault == nil {
		t.fault = errors.Join(closing, waited)
	}
	if t.fault != nil {
		if said := firstLine(t.stderr.String()); said != "" {
			return Snapshot{}, fmt.Errorf("reading commit %s: %w (git: %s)", t.commit, t.fault, said)
		}
		return Snapshot{}, fmt.Errorf("reading commit %s: %w", t.commit, t.fault)
	}
	snap.Commit = t.commit
	snap.Parents, snap.CommittedAt = parseCommit(string(text))
	return snap, nil
}
