// Package snapshot takes one consistent read of a project's source: the files of a folder, or the blobs of a commit.
//
// What decides about retirements must not be a scan that raced a checkout (P9, P11). A folder is listed, read and looked at
// again, and read once more if anything moved; a commit is read through the git program as immutable blobs, so neither the
// work tree nor a checkout in progress can be seen. Both go through one selection: the roots of nf.yaml, the ignore rules,
// links that stay inside the project, and the files that manifests name.
//
// A checkout may be hostile: nothing in it is run, no link is followed out of the project, and git is called with what it
// could be told to run switched off.
package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"time"

	"nf/schema/diag"
)

// ProjectFile is the name of the file that makes a folder a project.
const ProjectFile = "nf.yaml"

// IgnoreFile is the name of the file, beside ProjectFile, that lists what is no manifest.
const IgnoreFile = ".nfignore"

// ErrBusy says that a folder kept changing while it was read.
var ErrBusy = errors.New("source keeps changing while it is read")

// File is one file of a source. Path is relative to the project, with slashes.
type File struct {
	Path string
	Data []byte
	// Named is true for a file that was read because a manifest names it (a proto file), not as a manifest.
	Named bool
}

// Snapshot is one consistent read. It is not changed after it was made.
type Snapshot struct {
	// Project is the text of nf.yaml, nil if there is none (Findings then says so).
	Project []byte
	// Files are the manifests under the roots and the files that they name, by path. nf.yaml is not among them.
	Files []File
	// Roots are the roots that were read, cleaned.
	Roots []string
	// Findings say what could not be read: NF1001, NF1016, NF7001, NF7002, NF7003.
	Findings diag.List
	// Digest is taken over path and bytes of all that was read.
	Digest [32]byte

	// Commit is the hash of the commit that was read, Branch its branch; both are empty for a folder, and Branch for a
	// detached HEAD.
	Commit string
	Branch string
	// Parents and CommittedAt come from the commit object.
	Parents     []string
	CommittedAt time.Time
	// Changed are the paths, at most MaxChanged, in which the work tree differs from the commit. Dirty = there are any.
	Changed []string
	Dirty   bool

	ignoreText []byte // of .nfignore
}

// MaxChanged is how many differing paths a snapshot names.
const MaxChanged = 20

// Selection says which files belong to a project. Both functions are called with untrusted text and must be pure.
type Selection struct {
	// Roots reads the roots out of nf.yaml. Nil or an empty answer means the project's folder.
	Roots func(project []byte) []string
	// Follow lists further files that a read file names: paths relative to the project; one that ends in "/" stands for the
	// proto files of that folder and below.
	Follow func(path string, data []byte) []string
}

// Limits are the budgets of a source (contract 7.2).
type Limits struct {
	FileBytes  int   // bytes of a manifest
	NamedBytes int   // bytes of a file that a manifest names
	Files      int   // number of files
	TotalBytes int64 // bytes of all files
}

// DefaultLimits gives the defaults of contract 7.2.
func DefaultLimits() Limits {
	return Limits{FileBytes: 1 << 20, NamedBytes: 8 << 20, Files: 50_000, TotalBytes: 512 << 20}
}

// File gives the bytes of a file by path.
func (s *Snapshot) File(path string) ([]byte, bool) {
	i := sort.Search(len(s.Files), func(i int) bool { return s.Files[i].Path >= path })
	if i < len(s.Files) && s.Files[i].Path == path {
		return s.Files[i].Data, true
	}
	return nil, false
}

// seal sorts the files and takes the digest.
func (s *Snapshot) seal() {
	sort.Slice(s.Files, func(i, j int) bool { return s.Files[i].Path < s.Files[j].Path })
	s.Findings.Sort()
	h := sha256.New()
	add := func(path string, data []byte) {
		var frame [16]byte
		binary.BigEndian.PutUint64(frame[:8], uint64(len(path)))
		binary.BigEndian.PutUint64(frame[8:], uint64(len(data)))
		h.Write(frame[:])
		h.Write([]byte(path))
		h.Write(data)
	}
	add(ProjectFile, s.Project)
	add(IgnoreFile, s.ignoreText)
	for _, f := range s.Files {
		add(f.Path, f.Data)
	}
	h.Sum(s.Digest[:0])
}

// finding makes a finding about a whole file or folder.
func finding(code diag.Code, path, hint, format string, args ...any) diag.Diagnostic {
	start := diag.Pos{Line: 1, Column: 1}
	return diag.Diagnostic{
		Code: code, Level: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint, File: path,
		Range: diag.Range{Start: start, End: start},
	}
}
