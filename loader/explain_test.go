package loader_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nf/loader/source"
	"nf/schema/diag"
)

// TestExplanationsSayTheTruth: the bad example of each finding about YAML raises it, the good one raises nothing.
func TestExplanationsSayTheTruth(t *testing.T) {
	t.Parallel()
	for _, e := range diag.Codes() {
		if e.Code >= "NF2" || e.Bad == "" {
			continue
		}
		raised := func(text string) map[diag.Code]bool {
			_, list := source.Parse("x.yaml", []byte(text), source.DefaultLimits())
			codes := map[diag.Code]bool{}
			for _, d := range list {
				codes[d.Code] = true
			}
			return codes
		}
		// what the schema says is not the parser's to find
		if e.Code != "NF1010" && e.Code != "NF1019" {
			require.True(t, raised(e.Bad)[e.Code], "%s is not raised by its bad example %q", e.Code, e.Bad)
		}
		require.Empty(t, raised(e.Good), "the good example of %s: %q", e.Code, e.Good)
	}
}
