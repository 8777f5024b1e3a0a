package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"nf/loader/snapshot"
	"nf/runtime/pgdev"
	"nf/schema/diag"
)

// source names the step that a setting came from (N10): flag → NF_* → state.json of a live nf dev → built-in.
type source string

const (
	fromFlag    source = "flag"
	fromEnv     source = "environment"
	fromState   source = "nf dev"
	fromBuiltIn source = "default"
)

// setting is a value and the step it came from.
type setting struct {
	value string
	from  source
	name  string // of the flag or variable
}

// environ reads the process's environment. An empty variable counts as unset.
type environ map[string]string

func readEnviron(lines []string) environ {
	e := environ{}
	for _, line := range lines {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" {
			e[name] = value
		}
	}
	return e
}

// knownVariables are the NF_* names of wave 1 (contract 5.4) and those that nf itself sets for a worker's child.
var knownVariables = []string{
	"NF_DATABASE_URL", "NF_DATABASE_URL_FILE", "NF_URL", "NF_API_KEY", "NF_API_KEY_FILE", "NF_ENV", "NF_NAMESPACE", "NF_PROJECT_DIR",
	"NF_LISTEN", "NF_EXECUTORS", "NF_DB_MAX_CONNECTIONS", "NF_RUNNER_ID", "NF_DB_MIGRATE", "NF_PG_BIN", "NF_HTTP_ALLOWED_HOSTS",
	"NF_SECRETS_PROVIDER", "NF_SECRETS_DIR", "NF_OUTPUT", "NF_LOG_LEVEL", "NF_LOG_FORMAT", "NF_NO_INPUT", "NF_PARALLEL", "NF_ACTOR",
	"NF_COMMIT", "NF_BRANCH", "NF_TASK_ID", "NF_EXECUTION_ID", "NF_ATTEMPT", "NF_IDEMPOTENCY_KEY", "NF_REPORT_FILE", "NF_QUEUE", "NF_TASK_REFERENCE",
}

// unknownVariables gives a warning for each NF_* name that nf does not read.
func (e environ) unknownVariables() []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if !strings.HasPrefix(name, "NF_") || strings.HasPrefix(name, "NF_SECRET__") || strings.HasPrefix(name, "NF_TEST_") || slices.Contains(knownVariables, name) {
			continue
		}
		text := fmt.Sprintf("unknown variable %s", name)
		if near := diag.Nearest(name, knownVariables); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %s?", near[0])
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// boolean reads a variable that is 1, 0, true or false.
func (e environ) boolean(name string, fallback bool) (bool, error) {
	switch v := e[name]; v {
	case "":
		return fallback, nil
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return false, usage("%s=%q is not a boolean", name, v).hinted("use 1, 0, true or false")
	}
}

// integer reads a variable that is a whole number of at least low.
func (e environ) integer(name string, fallback, low int) (int, error) {
	v := e[name]
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low {
		return 0, usage("%s=%q is not a whole number of at least %d", name, v, low)
	}
	return n, nil
}

// settings are what a command works with.
type settings struct {
	env        environ
	projectDir string // absolute; "" if there is no nf.yaml
	workDir    string // absolute: -C, NF_PROJECT_DIR or the current folder
	live       *pgdev.State
	liveErr    error // why the state of nf dev does not count; told when it would be used
	namespace  setting
	envName    setting
	output     string
	color      string
	noInput    bool
	quiet      bool
	verbose    bool
	parallel   int
	timeout    time.Duration
}

// readSettings reads what every command shares. It does not touch the network. A lenient command goes on without its folder.
func readSettings(c *cli.Context, env environ, lenient bool) (settings, error) {
	s := settings{env: env, quiet: c.Bool("quiet"), verbose: c.Bool("verbose"), timeout: c.Duration("timeout")}
	s.namespace = s.pick(c, "namespace", "NF_NAMESPACE", "default")
	s.envName = s.pick(c, "env", "NF_ENV", "")
	s.output = s.pick(c, "output", "NF_OUTPUT", "text").value
	if s.output != "text" && s.output != "json" {
		return s, usage("unknown format %q", s.output).hinted("use text or json")
	}
	s.color = s.pick(c, "color", "", "auto").value
	if s.color != "auto" && s.color != "always" && s.color != "never" {
		return s, usage("--color %q", s.color).hinted("use auto, always or never")
	}
	noInput, err := env.boolean("NF_NO_INPUT", false)
	if err != nil {
		return s, err
	}
	s.noInput = noInput || c.Bool("no-input") || env["CI"] != ""
	if s.parallel, err = env.integer("NF_PARALLEL", runtime.NumCPU(), 1); err != nil {
		return s, err
	}
	if c.IsSet("parallel") {
		if s.parallel = c.Int("parallel"); s.parallel < 1 {
			return s, usage("--parallel %d is below 1", s.parallel)
		}
	}
	dir := s.pick(c, "project-dir", "NF_PROJECT_DIR", ".")
	if s.workDir, err = filepath.Abs(dir.value); err != nil {
		return s, fail("%s: %w", dir.value, err)
	}
	if info, err := os.Stat(s.workDir); (err != nil || !info.IsDir()) && !lenient {
		return s, usage("%s is not a folder", dir.value)
	}
	s.projectDir = findProject(s.workDir)
	s.live, s.liveErr = liveState(c.Context, s.folder()) // nf dev --no-run may live in a folder that is no project
	return s, nil
}

// pick takes the first step that sets a value.
func (s *settings) pick(c *cli.Context, flag, variable, fallback string) setting {
	if c.IsSet(flag) {
		if many := c.StringSlice(flag); len(many) > 0 { // a command's own, repeatable form
			return setting{many[0], fromFlag, "--" + flag}
		}
		return setting{c.String(flag), fromFlag, "--" + flag}
	}
	if v := s.env[variable]; v != "" {
		return setting{v, fromEnv, variable}
	}
	return setting{fallback, fromBuiltIn, ""}
}

// findProject gives the nearest folder with nf.yaml, up to the root of the git checkout.
func findProject(dir string) string {
	for {
		if info, err := os.Stat(filepath.Join(dir, snapshot.ProjectFile)); err == nil && !info.IsDir() {
			return dir
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return ""
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// liveState reads the state of a live nf dev of the project. A state file that git tracks does not count: a checkout could bring it along.
func liveState(ctx context.Context, project string) (*pgdev.State, error) {
	if project == "" {
		return nil, nil //nolint:nilnil // no project, no state: both are normal
	}
	state, err := pgdev.ReadState(project)
	if errors.Is(err, pgdev.ErrNotLive) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, fail("state of nf dev: %w", err)
	}
	if tracked(ctx, project) {
		return nil, nil //nolint:nilnil // as above
	}
	return &state, nil
}

func tracked(ctx context.Context, project string) bool {
	if _, _, found, err := snapshot.InGit(project); err != nil || !found {
		return false
	}

	cmd := exec.CommandContext(ctx, "git", "-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
		"--no-optional-locks", "ls-files", "--error-unmatch", "--", ".nf/dev/state.json")
	cmd.Dir = project
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0"}
	return cmd.Run() == nil
}

// database gives the database URL and where it came from.
func (s *settings) database(c *cli.Context) (setting, error) {
	text, file := s.env["NF_DATABASE_URL"], s.env["NF_DATABASE_URL_FILE"]
	switch {
	case c.IsSet("database-url"):
		return setting{c.String("database-url"), fromFlag, "--database-url"}, nil
	case text != "" && file != "":
		return setting{}, usage("NF_DATABASE_URL and NF_DATABASE_URL_FILE are both set").hinted("unset one of them")
	case text != "":
		return setting{text, fromEnv, "NF_DATABASE_URL"}, nil
	case file != "":
		content, err := readSecretFile(file)
		return setting{content, fromEnv, "NF_DATABASE_URL_FILE"}, err
	case s.live != nil:
		return setting{s.live.DatabaseURL, fromState, "nf dev"}, nil
	case s.liveErr != nil:
		return setting{}, s.liveErr
	}
	return setting{}, fail("no database: neither --database-url nor NF_DATABASE_URL is set, and no nf dev runs for this folder").
		hinted("start one with: nf dev")
}

// readSecretFile reads a one-line file.
func readSecretFile(path string) (string, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return "", fail("%w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// api gives URL and key of the API. A key is sent only to a URL of the same step (contract 5.4).
func (s *settings) api(c *cli.Context) (address, key setting, err error) {
	text, file := s.env["NF_API_KEY"], s.env["NF_API_KEY_FILE"]
	if text != "" && file != "" {
		return address, key, usage("NF_API_KEY and NF_API_KEY_FILE are both set").hinted("unset one of them")
	}
	key = setting{text, fromEnv, "NF_API_KEY"}
	if file != "" {
		content, err := readSecretFile(file)
		if err != nil {
			return address, key, err
		}
		key = setting{content, fromEnv, "NF_API_KEY_FILE"}
	}
	address = s.pick(c, "url", "NF_URL", "")
	if address.value == "" && s.liveErr != nil {
		return address, key, s.liveErr
	}
	if address.value == "" && s.live != nil && s.live.URL != "" {
		address = setting{s.live.URL, fromState, "nf dev"}
		if key.value != "" {
			return address, key, usage("the key comes from %s and the URL from nf dev: a key is sent only to a URL of the same source", key.name).
				hinted("unset %s, or set NF_URL", key.name)
		}
		key = setting{s.live.APIKey, fromState, "nf dev"}
	}
	if address.value == "" {
		address = setting{"http://127.0.0.1:7420", fromBuiltIn, "the default"}
	}
	parsed, err := url.Parse(address.value)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return address, key, usage("%s: %q is not an http or https URL", address.name, address.value)
	}
	if key.value == "" {
		if address.from == fromBuiltIn {
			return address, key, fail("no API: neither --url nor NF_URL is set, and no nf dev runs for this folder").
				hinted("start one with: nf dev (or name its folder with -C); for a runner elsewhere set NF_URL and NF_API_KEY")
		}
		return address, key, usage("no API key for %s", address.value).
			hinted("set NF_API_KEY (make a key with: nf keys create), or run the command where nf dev runs")
	}
	return address, key, nil
}

// actor is who stands in the audit: NF_ACTOR, else the CI's actor, else the OS user.
func (s *settings) actor() string {
	for _, name := range []string{"NF_ACTOR", "GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_REQUESTEDFOR", "CIRCLE_USERNAME"} {
		if v := s.env[name]; v != "" {
			return v
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// needEnv gives the environment's name that a writing command needs with a database URL. The private database of nf dev is environment dev.
func (s *settings) needEnv(db setting) (string, error) {
	if db.from == fromState {
		if s.envName.value != "" && s.envName.value != devEnvironment {
			return "", refused("the database of nf dev is environment %s, not %s", devEnvironment, s.envName.value)
		}
		return devEnvironment, nil
	}
	if s.envName.value == "" {
		return "", usage("which environment? This command writes to %s", redactURL(db.value)).hinted("give --env NAME or NF_ENV")
	}
	return s.envName.value, nil
}

// devEnvironment is the name of the private database of nf dev.
const devEnvironment = "dev"

// redactURL shows a database without user part.
func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return "the database"
	}
	host := u.Host
	if h := u.Query().Get("host"); host == "" && h != "" {
		host = h
	}
	return host + u.Path
}
