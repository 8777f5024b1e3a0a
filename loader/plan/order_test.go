package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/loader/plan"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	for name, c := range map[string]struct {
		facts plan.OrderFacts
		want  string
	}{
		"nothing in force":         {plan.OrderFacts{Mine: "b"}, ""},
		"the same":                 {plan.OrderFacts{Mine: "a", InForce: "a", Seen: map[string]plan.Seen{"a": {}}}, ""},
		"descends by history":      {plan.OrderFacts{Mine: "b", InForce: "a", Local: plan.Ancestry{InForceIsMine: plan.Yes}}, ""},
		"descends by its parents":  {plan.OrderFacts{Mine: "c", Parents: []string{"b"}, InForce: "a", Seen: map[string]plan.Seen{"b": {Superseded: true, Parents: []string{"a"}}}}, ""},
		"ancestor":                 {plan.OrderFacts{Mine: "a", InForce: "b", Local: plan.Ancestry{MineIsInForce: plan.Yes}}, "commit a is older than commit b"},
		"ancestor by parents":      {plan.OrderFacts{Mine: "a", InForce: "b", Seen: map[string]plan.Seen{"b": {Parents: []string{"a"}}}}, "commit a is older than commit b"},
		"diverged":                 {plan.OrderFacts{Mine: "a", InForce: "b", Local: plan.Ancestry{InForceIsMine: plan.No, MineIsInForce: plan.No}}, "does not contain commit b"},
		"unknown, older":           {plan.OrderFacts{Mine: "a", CommittedAt: early, InForce: "b", Seen: map[string]plan.Seen{"b": {CommittedAt: late}}}, "was committed before"},
		"unknown, newer":           {plan.OrderFacts{Mine: "a", CommittedAt: late, InForce: "b", Seen: map[string]plan.Seen{"b": {CommittedAt: early}}}, ""},
		"unknown, no time":         {plan.OrderFacts{Mine: "a", InForce: "b", Seen: map[string]plan.Seen{"b": {CommittedAt: early}}}, ""},
		"superseded":               {plan.OrderFacts{Mine: "a", InForce: "b", Local: plan.Ancestry{InForceIsMine: plan.Yes}, Seen: map[string]plan.Seen{"a": {Superseded: true, Generation: 3}}}, "generation 3"},
		"superseded, rewind":       {plan.OrderFacts{Mine: "a", InForce: "b", Rewind: true, Seen: map[string]plan.Seen{"a": {Superseded: true}}}, ""},
		"old content":              {plan.OrderFacts{Mine: "sha256:a", InForce: "sha256:b", Seen: map[string]plan.Seen{"sha256:a": {Superseded: true}}}, "content a was in force"},
		"old content, seen change": {plan.OrderFacts{Mine: "sha256:a", InForce: "sha256:b", ChangedFrom: "sha256:b", Seen: map[string]plan.Seen{"sha256:a": {Superseded: true}}}, ""},
		"old content, change from something else": {plan.OrderFacts{Mine: "sha256:a", InForce: "sha256:b", ChangedFrom: "sha256:c", Seen: map[string]plan.Seen{"sha256:a": {Superseded: true}}}, "content a"},
		"a commit comes back, change seen":        {plan.OrderFacts{Mine: "a", InForce: "b", ChangedFrom: "b", Seen: map[string]plan.Seen{"a": {Superseded: true}}}, "was in force"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan.Order(c.facts)
			if c.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, c.want)
			}
		})
	}
}

// Replicas at different commits of any history, each of which knows more or less of it, try to apply in any order, again and again: no commit is
// in force twice, and one that contains what is in force always goes in.
func TestReplicasAtDifferentCommitsNeverFlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 7).Draw(t, "commits")
		parents := make([][]string, n)
		ancestors := make([]map[string]bool, n)
		name := func(i int) string { return fmt.Sprintf("c%d", i) }
		for i := range n {
			ancestors[i] = map[string]bool{}
			for range min(i, rapid.IntRange(0, 2).Draw(t, "parents")) {
				p := rapid.IntRange(0, i-1).Draw(t, "parent")
				parents[i] = append(parents[i], name(p))
				ancestors[i][name(p)] = true
				for a := range ancestors[p] {
					ancestors[i][a] = true
				}
			}
		}
		all := rapid.Bool().Draw(t, "all know the history")
		inForce, generation, changes := "", int64(0), 0
		seen := map[string]plan.Seen{}
		for range rapid.IntRange(1, 60).Draw(t, "tries") {
			i := rapid.IntRange(0, n-1).Draw(t, "replica")
			facts := plan.OrderFacts{Mine: name(i), Parents: parents[i], CommittedAt: time.Unix(int64(i), 0), InForce: inForce, Seen: seen}
			if inForce != "" && (all || rapid.Bool().Draw(t, "knows")) {
				f := int(inForce[1] - '0')
				truth := func(yes bool) plan.Truth {
					if yes {
						return plan.Yes
					}
					return plan.No
				}
				facts.Local = plan.Ancestry{InForceIsMine: truth(ancestors[i][inForce]), MineIsInForce: truth(ancestors[f][name(i)])}
			}
			if plan.Order(facts) != "" || inForce == name(i) {
				continue
			}
			if inForce != "" {
				s := seen[inForce]
				s.Superseded = true
				seen[inForce] = s
			}
			generation++
			changes++
			inForce, seen[name(i)] = name(i), plan.Seen{Generation: generation, CommittedAt: facts.CommittedAt, Parents: facts.Parents}
			if changes > n {
				t.Fatalf("in force for the second time: %s", inForce)
			}
		}
		if !all || inForce == "" {
			return
		}
		// everybody tries once more, the newest descendant last: a descendant of what is in force always goes in
		for i := range n {
			if ancestors[i][inForce] && !seen[name(i)].Superseded {
				f := plan.OrderFacts{Mine: name(i), Parents: parents[i], InForce: inForce, Seen: seen, Local: plan.Ancestry{InForceIsMine: plan.Yes, MineIsInForce: plan.No}}
				if plan.Order(f) != "" {
					t.Fatalf("%s contains %s and is refused", name(i), inForce)
				}
			}
		}
	})
}
