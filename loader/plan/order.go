package plan

import (
	"fmt"
	"strings"
	"time"

	"nf/schema/diag"
)

// Truth is what is known of a relation between two commits.
type Truth int8

// What may be known.
const (
	Unknown Truth = iota
	Yes
	No
)

// Ancestry is what a checkout knows about my commit and the one in force. The zero value is nothing.
type Ancestry struct {
	InForceIsMine Truth // the commit in force is among the ancestors of mine
	MineIsInForce Truth // mine is among the ancestors of the commit in force
}

// Seen is a commit that the registry has recorded.
type Seen struct {
	Superseded  bool // another one took its place since
	Generation  int64
	CommittedAt time.Time // zero = unknown
	Parents     []string
}

// OrderFacts are what the order of commits is decided from (P11). A source without commits stands with the digest of its bytes in place of a commit.
type OrderFacts struct {
	Mine        string
	CommittedAt time.Time // zero = unknown
	Parents     []string
	InForce     string // "" = nothing of the project is in force
	Seen        map[string]Seen
	Local       Ancestry
	ChangedFrom string // what this process saw its source change from; "" = no change seen. It counts for digests only
	Rewind      bool   // a person wants it all the same
}

// Order says why my commit may not take the place of the one in force, "" if it may. It is pure, and the same for every process: two replicas at different
// commits never take turns, because what has been replaced stays out.
func Order(f OrderFacts) string {
	mine := f.Seen[f.Mine]
	switch {
	case f.Mine == f.InForce || f.Rewind:
		return ""
	case mine.Superseded && (!isDigest(f.Mine) || f.ChangedFrom == "" || f.ChangedFrom != f.InForce):
		return fmt.Sprintf("%s was in force in generation %d and was replaced by %s since", Short(f.Mine), mine.Generation, Short(f.InForce))
	case f.InForce == "":
		return ""
	case f.Local.InForceIsMine == Yes || reaches(f.Parents, f.InForce, f.Seen):
		return ""
	case f.Local.MineIsInForce == Yes || reaches(f.Seen[f.InForce].Parents, f.Mine, f.Seen):
		return fmt.Sprintf("%s is older than %s, which is in force", Short(f.Mine), Short(f.InForce))
	case f.Local.InForceIsMine == No && f.Local.MineIsInForce == No:
		return fmt.Sprintf("%s does not contain %s, which is in force", Short(f.Mine), Short(f.InForce))
	}
	if at := f.Seen[f.InForce].CommittedAt; !at.IsZero() && !f.CommittedAt.IsZero() && f.CommittedAt.Before(at) {
		return fmt.Sprintf("%s was committed before %s, which is in force, and its history does not say that it contains it", Short(f.Mine), Short(f.InForce))
	}
	return ""
}

// reaches says whether a commit is among parents or their recorded ancestors.
func reaches(parents []string, commit string, seen map[string]Seen) bool {
	visited := map[string]bool{}
	open := append([]string{}, parents...)
	for len(open) > 0 {
		next := open[0]
		open = open[1:]
		if next == commit {
			return true
		}
		if !visited[next] {
			visited[next] = true
			open = append(open, seen[next].Parents...)
		}
	}
	return false
}

func isDigest(key string) bool { return strings.HasPrefix(key, "sha256:") }

// Short is a commit or digest as people read it.
func Short(key string) string {
	if rest, is := strings.CutPrefix(key, "sha256:"); is {
		return "content " + rest[:min(12, len(rest))]
	}
	return "commit " + key[:min(12, len(key))]
}

// order judges the order of commits. A plan warns, an apply refuses.
func (d *diffing) order() {
	if d.in.Order == nil {
		return
	}
	reason := Order(*d.in.Order)
	d.plan.Behind = reason
	if reason == "" {
		return
	}
	level, hint := diag.Warning, "merge or rebase: some of the changes below undo what is in force"
	if d.in.ForApply {
		level, hint = diag.Error, "merge or rebase; to go back on purpose: nf rollback, or nf apply --rewind --reason TEXT"
	}
	d.findProject("NF6107", level, reason, hint)
}
