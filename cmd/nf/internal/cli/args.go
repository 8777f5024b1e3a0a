package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/schema/diag"
)

// The CLI library stops looking for flags at the first argument, takes `--flag false` for true and one argument, and answers unknown
// commands with a code of its own. So arguments are put in order before it sees them: flags may follow arguments, and whatever it would
// pass over in silence is a usage error (contract 5.2).

// arranged is a command line in an order that the library reads rightly.
type arranged struct {
	path    []string // names of the commands, as written
	command *cli.Command
	argv    []string // program, path, flags, "--", arguments
	args    []string
}

// arrange finds the command and sorts its line into flags and arguments.
func arrange(app *cli.App, argv []string) (arranged, error) {
	out := arranged{argv: []string{argv[0]}}
	commands, rest := app.Commands, argv[1:]
	var leading []string // common flags before the command
	for len(rest) > 0 && out.command == nil {
		if name := rest[0]; strings.HasPrefix(name, "-") && name != "-" {
			n, err := flagLength(app.Flags, rest, "nf")
			if err != nil {
				return out, err
			}
			leading, rest = append(leading, rest[:n]...), rest[n:]
			continue
		}
		break
	}
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		found := find(commands, rest[0])
		if found == nil {
			break
		}
		out.command, out.path, rest, commands = found, append(out.path, found.Name), rest[1:], found.Subcommands
		if len(commands) == 0 {
			break
		}
	}
	if err := out.misnamed(commands, rest); err != nil {
		return out, err
	}
	out.argv = append(out.argv, out.path...)
	flags := app.Flags
	where := "nf"
	if out.command != nil {
		flags, where = append(slices.Clone(out.command.Flags), app.Flags...), "nf "+strings.Join(out.path, " ")
	}
	set, args, err := split(flags, append(leading, rest...), where)
	if err != nil {
		return out, err
	}
	if err := once(flags, set); err != nil {
		return out, err
	}
	out.args = args
	out.argv = append(append(append(out.argv, set...), "--"), args...)
	return out, nil
}

// misnamed says that a word stands where only a command may stand.
func (a *arranged) misnamed(commands []*cli.Command, rest []string) error {
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") || a.command != nil && len(a.command.Subcommands) == 0 {
		return nil
	}
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
			names = append(names, c.Aliases...)
		}
	}
	line := strings.TrimSpace("nf " + strings.Join(a.path, " "))
	err := usage("unknown command %q of %s", rest[0], line)
	if line == "nf worker" {
		return err.hinted("a command of yours goes behind two dashes: nf worker -- %s", strings.Join(rest, " "))
	}
	if near := diag.Nearest(rest[0], names); len(near) > 0 {
		return err.hinted("did you mean %s %s?", line, near[0])
	}
	return err.hinted("%s has: %s", line, strings.Join(names, ", "))
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

// split takes the flags out of a line. After "--" everything is an argument.
func split(flags []cli.Flag, line []string, where string) (set, args []string, err error) {
	for len(line) > 0 {
		switch word := line[0]; {
		case word == "--":
			return set, append(args, line[1:]...), nil
		case word == "-" || !strings.HasPrefix(word, "-"):
			args, line = append(args, word), line[1:]
		default:
			n, err := flagLength(flags, line, where)
			if err != nil {
				return nil, nil, err
			}
			set, line = append(set, line[:n]...), line[n:]
		}
	}
	return set, args, nil
}

// once refuses a flag that is given twice where only one value counts: the library would take the last one in silence.
func once(flags []cli.Flag, set []string) error {
	seen := map[string]bool{}
	for i := 0; i < len(set); i++ {
		name, _, hasValue := strings.Cut(strings.TrimLeft(set[i], "-"), "=")
		f := flagOf(flags, name)
		if f == nil {
			continue
		}
		if _, isBool := f.(*cli.BoolFlag); !isBool && !hasValue {
			i++
		}
		if _, many := f.(*cli.StringSliceFlag); many {
			continue
		}
		if first := f.Names()[0]; seen[first] {
			return usage("--%s is given twice", first)
		}
		seen[f.Names()[0]] = true
	}
	return nil
}

func flagOf(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// flagLength says how many words a flag takes: 1, or 2 with its value apart.
func flagLength(flags []cli.Flag, line []string, where string) (int, error) {
	word := line[0]
	name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	var flag cli.Flag
	var known []string
	for _, f := range append(slices.Clone(flags), cli.HelpFlag) {
		for _, n := range f.Names() {
			if n == name {
				flag = f
			}
			if len(n) > 1 {
				known = append(known, n)
			}
		}
	}
	if flag == nil {
		err := usage("unknown flag %s of %s", word, where)
		if near := diag.Nearest(name, known); len(near) > 0 {
			return 0, err.hinted("did you mean --%s?", near[0])
		}
		return 0, err.hinted("%s --help lists its flags", where)
	}
	if _, isBool := flag.(*cli.BoolFlag); isBool {
		if hasValue && !slices.Contains([]string{"true", "false", "1", "0"}, value) {
			return 0, usage("--%s takes true or false, not %q", name, value)
		}
		if !hasValue && len(line) > 1 && (line[1] == "true" || line[1] == "false") {
			return 0, usage("--%s %s would leave %q as an argument", name, line[1], line[1]).hinted("write --%s=%s", name, line[1])
		}
		return 1, nil
	}
	if hasValue {
		return 1, checkValue(flag, name, value)
	}
	if len(line) < 2 || line[1] == "--" {
		return 0, usage("--%s needs a value", name)
	}
	return 2, checkValue(flag, name, line[1])
}

// checkValue refuses what the library would report in its own words.
func checkValue(flag cli.Flag, name, value string) error {
	if _, isDuration := flag.(*cli.DurationFlag); isDuration && value != "" && strings.Trim(value, "0123456789.") == "" {
		return usage("--%s %s has no unit", name, value).hinted("write --%s %ss", name, value)
	}
	return nil
}

// wantArgs holds the number of arguments to what a command takes; most < 0 = any number.
func wantArgs(c *cli.Context, least, most int, what string) error {
	n := c.NArg()
	switch {
	case n < least:
		return usage("nf %s needs %s", c.Command.HelpName[len("nf "):], what)
	case most >= 0 && n > most:
		return usage("stray argument %q", c.Args().Get(most)).hinted("%s", fmt.Sprintf("nf %s takes %s", c.Command.HelpName[len("nf "):], orNothing(what)))
	}
	return nil
}

func orNothing(what string) string {
	if what == "" {
		return "no arguments"
	}
	return what
}
