package main_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/cmd/nf/internal/cli"
)

// Every example is a project without findings.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	projects, err := filepath.Glob("../../examples/*/nf.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, projects)
	for _, p := range projects {
		var out, said bytes.Buffer
		code := cli.Main([]string{"nf", "validate", filepath.Dir(p)}, nil, &out, &said, nil)
		require.Zero(t, code, "%s\n%s", out.String(), said.String())
		require.Contains(t, out.String(), "0 errors, 0 warnings")
	}
}
