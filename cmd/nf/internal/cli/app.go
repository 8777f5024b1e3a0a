// Package cli is the command line: one file a command, each parses, calls and prints. runner.go is the composition root.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
)

// Version and Commit of this build; the linker sets them.
var (
	Version = "0.1.0-dev" //nolint:gochecknoglobals // set by the linker
	Commit  = ""          //nolint:gochecknoglobals // set by the linker
)

// Build orders releases: the schema knows the lowest that may still work (P4).
const Build int64 = 1

// shell is what a command works with: its streams, its environment, its settings.
type shell struct {
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	env      environ
	environ  []string
	settings settings
	c        *cli.Context
	lastly   atomic.Pointer[func()] // what must still happen when a second signal ends the process at once
}

// ctx is that of the command: it ends at the first SIGINT or SIGTERM.
func (sh *shell) ctx() context.Context { return sh.c.Context }

// say prints a note for people: standard error, not with -q.
func (sh *shell) say(format string, args ...any) {
	if !sh.settings.quiet {
		fmt.Fprintf(sh.stderr, format+"\n", args...)
	}
}

// show writes a result with signs and levels in colour, where that is wanted.
func (sh *shell) show(text string) {
	if sh.colored() {
		text = view.Colored(text)
	}
	sh.print(text)
}

// colored says whether results have colour: never the only way to tell things apart (design C7).
func (sh *shell) colored() bool {
	switch sh.settings.color {
	case "always":
		return true
	case "never":
		return false
	}
	out, ok := sh.stdout.(*os.File)
	return ok && sh.env["NO_COLOR"] == "" && isatty.IsTerminal(out.Fd())
}

// print writes a result.
func (sh *shell) print(text string) { _, _ = io.WriteString(sh.stdout, text) }

// Main runs one command line and gives its exit code.
func Main(argv []string, stdin io.Reader, stdout, stderr io.Writer, environment []string) int {
	sh := &shell{stdin: stdin, stdout: stdout, stderr: stderr, env: readEnviron(environment), environ: environment}
	ctx, interrupted, stop := untilSignal(context.Background(), &sh.lastly)
	defer stop()
	err := sh.run(ctx, argv)
	if signal := interrupted(); signal != nil && err != nil && codeOf(err) != exitOK {
		if signal == syscall.SIGTERM {
			return exitTerminated
		}
		return exitInterrupted
	}
	if errors.Is(err, context.DeadlineExceeded) && sh.settings.timeout > 0 && sh.c != nil && sh.c.Context.Err() != nil {
		err = fail("not done within --timeout %s: %w", sh.settings.timeout, err)
	}
	sh.tell(err)
	return codeOf(err)
}

// untilSignal gives a context that the first SIGINT or SIGTERM ends; the second ends the process, after what lastly holds.
func untilSignal(parent context.Context, lastly *atomic.Pointer[func()]) (ctx context.Context, interrupted func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	first := make(chan os.Signal, 1)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		first <- s
		cancel()
		if s, ok := <-signals; ok {
			if last := lastly.Load(); last != nil {
				(*last)()
			}
			if s == syscall.SIGTERM {
				os.Exit(exitTerminated)
			}
			os.Exit(exitInterrupted)
		}
	}()
	return ctx, func() os.Signal {
			select {
			case s := <-first:
				return s
			default:
				return nil
			}
		}, func() {
			signal.Stop(signals)
			close(signals)
			cancel()
		}
}

// tell prints why a command failed, and what to do about it.
func (sh *shell) tell(err error) {
	if err == nil {
		return
	}
	message, hint := err.Error(), ""
	if e, ok := errors.AsType[*exitError](err); ok {
		hint = e.hint
	}
	if message == "" {
		return
	}
	fmt.Fprintln(sh.stderr, "nf: "+view.Safe(message))
	if hint != "" {
		fmt.Fprintln(sh.stderr, "    "+view.Safe(hint))
	}
}

func (sh *shell) run(ctx context.Context, argv []string) error {
	app := sh.app()
	line, err := arrange(app, argv)
	if err != nil {
		return err
	}
	if line.command == nil && len(line.args) == 0 && len(line.argv) == 2 { // bare nf: "nf --"
		_ = app.RunContext(ctx, []string{"nf", "--help"})
		return quiet(exitUsage)
	}
	if line.command != nil && len(line.command.Subcommands) > 0 && len(line.args) == 0 && !wantsHelp(line.argv) {
		_ = app.RunContext(ctx, append(append([]string{"nf"}, line.path...), "--help"))
		return quiet(exitUsage)
	}
	return app.RunContext(ctx, line.argv)
}

func wantsHelp(argv []string) bool {
	for _, a := range argv {
		if a == "--" {
			return false
		}
		if a == "-h" || a == "--help" {
			return true
		}
	}
	return false
}

// app is the table of commands. A test holds it to the contract, both ways.
func (sh *shell) app() *cli.App {
	app := &cli.App{
		Name: "nf", HelpName: "nf", Usage: "declarative workflow runner: commit YAML, run workflows on Postgres", Version: Version, HideVersion: true,
		Writer: sh.stdout, ErrWriter: sh.stderr, Reader: sh.stdin, Flags: append(commonFlags(), helpFlag()), HideHelp: true, HideHelpCommand: true, DisableSliceFlagSeparator: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return usage("%v", err) },
		Commands: []*cli.Command{
			sh.validateCommand(), sh.planCommand(), sh.applyCommand(), sh.statusCommand(), sh.dbCommand(), sh.keysCommand(), sh.devCommand(), sh.runCommand(),
			sh.startCommand("start"), sh.getCommand("get"), sh.executionCommand(), sh.taskCommand(), sh.workerCommand(), sh.queueCommand(),
			sh.semaphoreCommand(), sh.explainCommand(), sh.schemaCommand(), sh.fmtCommand(), sh.newCommand(), sh.completionCommand(), sh.versionCommand(), sh.helpCommand(),
		},
	}
	quietDefaults(app.Flags)
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

// finish gives a command the common flags and the usage handler, and its children too.
func finish(c *cli.Command) {
	c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return usage("%v", err) }
	c.HideHelp, c.HideHelpCommand = true, true
	if c.Action != nil {
		c.Flags = append(c.Flags, missing(commonFlags(), c.Flags)...)
	}
	c.Flags = append(c.Flags, helpFlag())
	quietDefaults(c.Flags)
	for _, s := range c.Subcommands {
		finish(s)
	}
}

// quietDefaults keeps "(default: false)" out of the help: a flag is off unless it is given.
func quietDefaults(flags []cli.Flag) {
	for _, f := range flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true
		}
	}
}

// helpFlag is the library's help flag without its shared state.
func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}

// missing gives the flags whose names a command has not taken for a form of its own (nf keys create --namespace, nf run -C).
func missing(common, own []cli.Flag) []cli.Flag {
	return slices.DeleteFunc(common, func(f cli.Flag) bool {
		return slices.ContainsFunc(own, func(o cli.Flag) bool { return o.Names()[0] == f.Names()[0] })
	})
}

// action wraps a command: it reads the settings first.
func (sh *shell) action(least, most int, what string, run func() error) cli.ActionFunc {
	return sh.lenientAction(false, least, most, what, run)
}

// lenientAction is action for a command that goes on without the folder of a project (P12).
func (sh *shell) lenientAction(lenient bool, least, most int, what string, run func() error) cli.ActionFunc {
	return func(c *cli.Context) error {
		sh.c = c
		if err := wantArgs(c, least, most, what); err != nil {
			return err
		}
		var err error
		if sh.settings, err = readSettings(c, sh.env, lenient); err != nil {
			return err
		}
		for _, w := range sh.env.unknownVariables() {
			sh.say("warning: %s", w)
		}
		if sh.settings.timeout > 0 {
			ctx, cancel := context.WithTimeout(c.Context, sh.settings.timeout)
			defer cancel()
			c.Context = ctx
		}
		return run()
	}
}

// commonFlags go with every command (contract 5.2).
func commonFlags() []cli.Flag {
	const category = "Common"
	return []cli.Flag{
		&cli.StringFlag{Name: "project-dir", Aliases: []string{"C"}, Usage: "folder of the project", Category: category},
		&cli.StringFlag{Name: "env", Aliases: []string{"e"}, Usage: "name of the environment", Category: category},
		&cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Usage: "namespace (default)", Category: category},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "text or json", Category: category},
		&cli.StringFlag{Name: "color", Usage: "auto, always or never", Category: category},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "results only", Category: category},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say more", Category: category},
		&cli.StringFlag{Name: "log-format", Usage: "text or json", Category: category},
		&cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Category: category},
		&cli.BoolFlag{Name: "no-input", Usage: "never ask", Category: category},
		&cli.DurationFlag{Name: "timeout", Usage: "give up after this long, such as 30s", DefaultText: "never", Category: category},
		&cli.IntFlag{Name: "parallel", Usage: "files at once", DefaultText: "one for each processor", Category: category},
		&cli.StringFlag{Name: "url", Usage: "URL of a runner's API", Category: category},
		&cli.StringFlag{Name: "database-url", Usage: "URL of the database", Category: category},
	}
}

func (sh *shell) versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: sh.action(0, 0, "", func() error {
		if sh.settings.output == "json" {
			return sh.json(map[string]any{"format_version": view.FormatVersion, "version": Version, "commit": Commit, "build": Build})
		}
		line := "nf " + Version
		if Commit != "" {
			line += " (" + Commit + ")"
		}
		sh.print(line + "\n")
		return nil
	})}
}

func (sh *shell) helpCommand() *cli.Command {
	return &cli.Command{Name: "help", Usage: "help on a command, or on exit-codes", ArgsUsage: "[COMMAND | exit-codes]", Action: sh.action(0, -1, "", func() error {
		words := sh.c.Args().Slice()
		if len(words) == 1 && words[0] == "exit-codes" {
			sh.print(view.ExitCodes)
			return nil
		}
		line, err := arrange(sh.app(), append(append([]string{"nf"}, words...), "--help"))
		if err != nil {
			return err
		}
		return sh.app().RunContext(sh.ctx(), line.argv)
	})}
}

// json prints one JSON document.
func (sh *shell) json(v any) error {
	text, err := view.JSON(v)
	if err != nil {
		return fail("%w", err)
	}
	sh.print(text)
	return nil
}

func (sh *shell) completionCommand() *cli.Command {
	return &cli.Command{Name: "completion", Usage: "print a completion script", ArgsUsage: "bash|zsh|fish", Action: sh.action(1, 1, "bash, zsh or fish", func() error {
		switch name := sh.c.Args().First(); name {
		case "bash", "zsh", "fish":
			sh.print(completionScript(name, sh.app()))
			return nil
		default:
			return usage("no completion for %q", name).hinted("use bash, zsh or fish")
		}
	})}
}

// completionScript completes the words of the command table.
func completionScript(kind string, app *cli.App) string {
	var top []string
	sub := map[string][]string{}
	for _, c := range app.Commands {
		top = append(top, c.Name)
		for _, s := range c.Subcommands {
			sub[c.Name] = append(sub[c.Name], s.Name)
		}
	}
	var b strings.Builder
	switch kind {
	case "fish":
		fmt.Fprintf(&b, "complete -c nf -n __fish_use_subcommand -f -a '%s'\n", strings.Join(top, " "))
		for _, c := range top {
			if len(sub[c]) > 0 {
				fmt.Fprintf(&b, "complete -c nf -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", c, strings.Join(sub[c], " "))
			}
		}
	case "zsh":
		b.WriteString("autoload -U +X bashcompinit && bashcompinit\n")
		fallthrough
	default:
		b.WriteString("_nf() {\n  local words=\"" + strings.Join(top, " ") + "\"\n  if [ \"$COMP_CWORD\" -gt 1 ]; then\n    case \"${COMP_WORDS[1]}\" in\n")
		for _, c := range top {
			if len(sub[c]) > 0 {
				fmt.Fprintf(&b, "      %s) words=\"%s\" ;;\n", c, strings.Join(sub[c], " "))
			}
		}
		b.WriteString("      *) COMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")); return ;;\n    esac\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -F _nf nf\n")
	}
	return b.String()
}
