package format_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/loader/format"
)

func formatted(t testing.TB, src string) string {
	t.Helper()
	out, err := format.Source("x.yaml", []byte(src))
	require.NoError(t, err, src)
	again, err := format.Source("x.yaml", out)
	require.NoError(t, err)
	require.Equal(t, string(out), string(again), "formatting is done in one go")
	return string(out)
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"keys of the envelope": {
			"# the printers\nkind: Semaphore\nspec: {permits: 2}  \napiVersion: nf/v1\n\n# who\nmetadata:\n  namespace: a\n  # the name\n  name: b",
			"# the printers\napiVersion: nf/v1\n\nkind: Semaphore\n# who\nmetadata:\n  # the name\n  name: b\n  namespace: a\nspec: {permits: 2}\n",
		},
		"task": {
			"spec:\n  tasks:\n    - type: WAIT # w\n      inputParameters: {duration: 1s}\n      # its name\n      description: x\n      taskReferenceName: a\n    - {type: WAIT, taskReferenceName: b}\n",
			"spec:\n  tasks:\n    - taskReferenceName: a\n      type: WAIT # w\n      inputParameters: {duration: 1s}\n      # its name\n      description: x\n    - {type: WAIT, taskReferenceName: b}\n",
		},
		"comment of the key that would come first": {
			"spec:\n  tasks:\n    - type: WAIT\n      # its name\n      taskReferenceName: a\n",
			"spec:\n  tasks:\n    - type: WAIT\n      # its name\n      taskReferenceName: a\n",
		},
		"block scalars keep their blanks": {
			"kind: x\nmetadata:\n  description: |+\n    a  \n\n    b\t\n\n\n",
			"kind: x\nmetadata:\n  description: |+\n    a  \n\n    b\t\n\n\n",
		},
		"quoted text over lines": {
			"kind: x\nmetadata:\n  description: \"a  \n    b\"   \n  name: c\n\n\n",
			"kind: x\nmetadata:\n  name: c\n  description: \"a  \n    b\"\n",
		},
		"v31: CRLF": {
			"\ufeffkind: x # k\r\n# about\r\napiVersion: nf/v1  \r\n",
			"# about\r\napiVersion: nf/v1\r\nkind: x # k\r\n",
		},
		"anchor after its alias": {
			"metadata: {name: *a}\nkind: &a x\n", "",
		},
		"alias keeps its anchor above it": {
			"spec: {a: &x 1}\nmetadata: {b: *x}\nkind: k\n",
			"spec: {a: &x 1}\nmetadata: {b: *x}\nkind: k\n",
		},
		"merged keys": {
			"spec:\n  base: &b {type: WAIT}\n  tasks:\n    - <<: *b\n      description: x\n      taskReferenceName: a\n",
			"spec:\n  base: &b {type: WAIT}\n  tasks:\n    - <<: *b\n      description: x\n      taskReferenceName: a\n",
		},
		"documents": {
			"spec: {}\nkind: a\n---\n# second\nspec: {}\nkind: b\n",
			"kind: a\nspec: {}\n---\n# second\nkind: b\nspec: {}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				_, err := format.Source("x.yaml", []byte(c.src))
				require.ErrorIs(t, err, format.ErrBroken)
				return
			}
			require.Equal(t, c.want, formatted(t, c.src))
		})
	}
	out, err := format.Source("x.JSON", []byte(`{ "kind" : 1 }  `))
	require.NoError(t, err)
	require.Equal(t, `{ "kind" : 1 }  `, string(out))
}

// The example is written the way nf fmt writes.
func TestExampleIsFormatted(t *testing.T) {
	t.Parallel()
	require.NoError(t, filepath.WalkDir("../../examples", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		src, err := os.ReadFile(path)
		require.NoError(t, err)
		out, err := format.Source(path, src)
		require.NoError(t, err, path)
		require.Equal(t, string(src), string(out), path)
		return nil
	}))
}

// Any manifest, with its keys in any order, comments, blanks and blank lines anywhere: formatting keeps all lines but their order and their blanks at the end,
// and is done in one go. (That the values stay is checked by the formatter itself, and again here by formatting the result.)
func TestFormatKeepsEveryLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := document(t)
		out, err := format.Source("x.yaml", []byte(src))
		if err != nil {
			t.Fatalf("%v in %q", err, src)
		}
		count := func(text string) map[string]int {
			lines := map[string]int{}
			for line := range strings.Lines(text) {
				if line = strings.TrimPrefix(strings.TrimSpace(line), "- "); line != "" {
					lines[line]++
				}
			}
			return lines
		}
		require.Equal(t, count(src), count(string(out)))
		again, err := format.Source("x.yaml", out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("again: %v\n%s\n%s", err, out, again)
		}
	})
}

// document draws a manifest.
func document(t *rapid.T) string {
	noise := func(indent int) string {
		var b strings.Builder
		for range rapid.IntRange(0, 2).Draw(t, "lines") {
			b.WriteString(rapid.SampledFrom([]string{"", "   ", strings.Repeat(" ", indent) + "# c", "# far left", strings.Repeat(" ", indent+3) + "# far in"}).Draw(t, "noise") + "\n")
		}
		return b.String()
	}
	keys := func(indent int, dash bool, entries []string) string {
		var b strings.Builder
		for i, e := range rapid.Permutation(entries).Draw(t, "order") {
			lead := strings.Repeat(" ", indent)
			if i == 0 && dash {
				lead = strings.Repeat(" ", indent-2) + "- "
			} else {
				b.WriteString(noise(indent))
			}
			b.WriteString(lead + e + "\n")
		}
		return b.String()
	}
	tail := rapid.SampledFrom([]string{"", "  ", " # t"})
	task := func() string {
		return keys(6, true, []string{
			"taskReferenceName: a" + tail.Draw(t, "tail"), "type: SIMPLE" + tail.Draw(t, "tail"), "name: b",
			"description: |\n        text  \n\n        more", "inputParameters:\n        x: 1\n        # inner\n        v: [1,\n          2]",
		})
	}
	tasks := "tasks:\n" + task() + task()
	return keys(0, false, []string{
		"apiVersion: nf/v1" + tail.Draw(t, "tail"), "kind: Workflow",
		"metadata:\n" + keys(2, false, []string{"name: a", "namespace: b", "labels: {x: z}", "description: 'a\n\n    b'"}),
		"spec:\n" + keys(2, false, []string{tasks, "timeoutSeconds: 5"}),
	})
}

// FuzzSource: no input makes the formatter panic, and what it gives is stable.
func FuzzSource(f *testing.F) {
	f.Add([]byte("kind: a\napiVersion: nf/v1\n"))
	f.Add([]byte("spec:\n  tasks:\n    - type: WAIT\n      taskReferenceName: a\n"))
	f.Add([]byte("a: |+\n  x \n\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		out, err := format.Source("x.yaml", src)
		if err != nil {
			return
		}
		again, err := format.Source("x.yaml", out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}
