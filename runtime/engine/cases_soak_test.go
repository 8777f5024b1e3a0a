//go:build soak && unix

package engine_test

import "testing"

// 1,000 completions at the instant of their deadline.
func TestSoakBG_23_CompletionAndDeadlineAtTheSameInstant(t *testing.T) { deadlineRaces(t, 1000) }

// 500 pairs of last branches that end together.
func TestSoakBG_100_JoinFiresWhenTheLastBranchesEndTogether(t *testing.T) { lastBranches(t, 3, 500) }

// 200 pairs of branches that fail together.
func TestSoakBG_04_BranchesThatFailTogetherAreRetried(t *testing.T) { failTogether(t, 200) }

// The process dies at every statement boundary of start, complete, decide and end.
func TestSoakBG_128_FC_094_DeathAtEveryStatementBoundary(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { abortEverywhere(t, s, 1, 0) })
	}
}
