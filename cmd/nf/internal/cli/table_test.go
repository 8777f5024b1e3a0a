package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

// contract is the table of commands with their own flags, as published (contract 5.1, waves 1 and 2 as far as they are built). A flag that may be repeated ends in *.
var contract = map[string]string{
	"validate": "", "plan": "detailed-exitcode source", "apply": "yes dry-run rewind reason source", "status": "watch",
	"db migrate": "yes", "db status": "",
	"keys create": "name scope* namespace*", "keys list": "", "keys revoke": "",
	"dev":   "listen reset no-run debounce",
	"run":   "listen executors once project-dir* source poll debounce watch no-watch apply",
	"start": "input version key wait", "execution start": "input version key wait",
	"get": "watch input output-only", "execution get": "watch input output-only",
	"execution list":      "workflow status* since until limit all",
	"execution terminate": "reason",
	"task list":           "control status*", "task logs": "follow",
	"worker": "queue* all-queues concurrency lease id once", "worker list": "",
	"queue list": "", "queue depth": "exact",
	"explain": "", "schema print": "", "schema write": "", "fmt": "check diff", "new": "type",
	"semaphore list": "", "completion": "", "version": "", "help": "",
}

// common are the flags of every command (contract 5.2).
const common = "project-dir env namespace output color quiet verbose log-format log-level no-input timeout parallel url database-url"

// short are the one-letter forms of the contract.
var short = map[string]string{"C": "project-dir", "e": "env", "n": "namespace", "o": "output", "q": "quiet", "v": "verbose"}

// TestTableOfCommandsIsTheContracts holds the table to the code, both ways: every command and flag is there, and no other.
func TestTableOfCommandsIsTheContracts(t *testing.T) {
	t.Parallel()
	sh := &shell{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, env: environ{}}
	got := map[string]string{}
	var walk func(prefix string, list []*cli.Command)
	walk = func(prefix string, list []*cli.Command) {
		for _, c := range list {
			name := strings.TrimSpace(prefix + " " + c.Name)
			if c.Action != nil {
				got[name] = ownFlags(t, name, c)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("", sh.app().Commands)
	want := map[string]string{}
	for name, flags := range contract {
		want[name] = inOrder(flags)
	}
	require.Equal(t, want, got)
}

// ownFlags gives a command's own flags and requires that it has all common ones besides.
func ownFlags(t *testing.T, name string, c *cli.Command) string {
	t.Helper()
	var own, all []string
	for _, f := range c.Flags {
		_, many := f.(*cli.StringSliceFlag)
		long := f.Names()[0]
		all = append(all, long)
		for _, alias := range f.Names()[1:] {
			if alias == "h" {
				continue
			}
			require.Equal(t, long, short[alias], "nf %s: -%s", name, alias)
		}
		if long == "help" || !many && slices.Contains(strings.Fields(common), long) {
			continue
		}
		if many {
			long += "*"
		}
		own = append(own, long)
	}
	for want := range strings.FieldsSeq(common) {
		require.Contains(t, all, want, "nf %s", name)
	}
	return inOrder(strings.Join(own, " "))
}

func inOrder(words string) string {
	list := strings.Fields(words)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestTableOfVariablesIsTheContracts: an unknown NF_* name is told with what was probably meant, a known one is not.
func TestTableOfVariablesIsTheContracts(t *testing.T) {
	t.Parallel()
	env := readEnviron([]string{
		"NF_DATABASE_URL=x", "NF_LISTN=y", "NF_SECRET__A__B__C=z", "NF_EMPTY=", "HOME=/", "NF_HTTP_ALLOWED_HOSTS=a", "NF_SEAL_KEY=later",
	})
	require.Equal(t, []string{"unknown variable NF_LISTN; did you mean NF_LISTEN?", "unknown variable NF_SEAL_KEY"}, env.unknownVariables())
	require.NotContains(t, env, "NF_EMPTY", "an empty variable is unset")
}

// TestHelpShowsNoEmptyDefaults: a zero that stands for "none" says nothing to who reads the help.
func TestHelpShowsNoEmptyDefaults(t *testing.T) {
	t.Parallel()
	sh := &shell{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, env: environ{}}
	app := sh.app()
	check := func(name string, flags []cli.Flag) {
		for _, f := range flags {
			for _, noise := range []string{"(default: 0)", "(default: 0s)", "(default: false)"} {
				require.NotContains(t, f.String(), noise, name)
			}
		}
	}
	check("nf", app.Flags)
	var walk func(prefix string, list []*cli.Command)
	walk = func(prefix string, list []*cli.Command) {
		for _, c := range list {
			check(prefix+" "+c.Name, c.Flags)
			walk(prefix+" "+c.Name, c.Subcommands)
		}
	}
	walk("nf", app.Commands)
	require.Contains(t, app.Command("run").Flags[1].String(), "(default: 20)")
}
