package snapshot

import (
	"context"
	"errors"
	"os/exec"
	"strings"
)

// Ancestry says how two commits stand to each other, as far as a checkout knows it: nil = it does not know.
type Ancestry struct {
	OtherIsMine *bool // the other one is among the ancestors of mine
	MineIsOther *bool // mine is among those of the other one
}

// GitAncestry asks the checkout of a folder. In a shallow clone, or where a commit is not there, only what is seen for certain is told. It never fails: what
// cannot be asked is not known.
func GitAncestry(ctx context.Context, dir, mine, other string) Ancestry {
	if !isHash(mine) || !isHash(other) {
		return Ancestry{}
	}
	g, err := openGit(ctx, dir)
	if err != nil {
		return Ancestry{}
	}
	shallow := true
	if out, err := g.run(ctx, "rev-parse", "--is-shallow-repository"); err == nil {
		shallow = strings.TrimSpace(out) != "false"
	}
	return Ancestry{OtherIsMine: g.isAncestor(ctx, other, mine, shallow), MineIsOther: g.isAncestor(ctx, mine, other, shallow)}
}

// isAncestor asks whether a is among the ancestors of b.
func (g *checkout) isAncestor(ctx context.Context, a, b string, shallow bool) *bool {
	_, err := g.run(ctx, "merge-base", "--is-ancestor", a, b)
	yes := err == nil
	if yes {
		return &yes
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 && !shallow {
		return &yes
	}
	return nil
}
