//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest major version of Postgres that nf runs on (P2).
const MinVersion = 15

// ErrNoBinaries says that the machine has no server binaries that nf can use. The error that wraps it names what was looked
// at and the command that installs them.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries")

// Binaries is a folder that holds initdb and postgres of one version.
type Binaries struct {
	Dir   string // absolute
	Major int    // such as 15
}

// usualFolders are where Debian, Fedora (and its kin), Homebrew and Postgres.app put server binaries.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/usr/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/opt/homebrew/opt/postgresql/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin",
}

// Find gives the newest usable server binaries of the machine. See FindAll.
func Find(ctx context.Context, hint string) (Binaries, error) {
	all, err := FindAll(ctx, hint)
	if err != nil {
		return Binaries{}, err
	}
	return all[0], nil
}

// FindAll looks for server binaries of MinVersion or newer, newest first: in the folder hint (the setting NF_PG_BIN) and
// nowhere else if it is not empty; else in PATH, the usual folders of Debian, Fedora and Homebrew, and the folder of the
// user's cache into which `make pg` unpacks. The error is ErrNoBinaries, wrapped.
func FindAll(ctx context.Context, hint string) ([]Binaries, error) {
	if hint != "" {
		b, err := inspect(ctx, hint)
		if err != nil {
			return nil, fmt.Errorf("%w in NF_PG_BIN=%s: %w", ErrNoBinaries, hint, err)
		}
		return []Binaries{b}, nil
	}
	var found []Binaries
	var tooOld []string
	for _, dir := range candidates() {
		b, err := inspect(ctx, dir)
		var old *tooOldError
		switch {
		case errors.As(err, &old):
			tooOld = append(tooOld, fmt.Sprintf("%s has version %d", dir, old.major))
		case err == nil && !slices.ContainsFunc(found, func(f Binaries) bool { return f.Dir == b.Dir }):
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		looked := "looked in PATH and the usual folders"
		if len(tooOld) > 0 {
			looked = strings.Join(tooOld, ", ")
		}
		return nil, fmt.Errorf("%w of version %d or newer: %s; %s, or set NF_PG_BIN to the folder that holds initdb and postgres",
			ErrNoBinaries, MinVersion, looked, installCommand(runtime.GOOS, readable("/etc/os-release")))
	}
	slices.SortStableFunc(found, func(a, b Binaries) int { return b.Major - a.Major })
	return found, nil
}

// CacheDir is the folder into which `make pg` unpacks server binaries when it may not install them.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder of the user: %w", err)
	}
	return filepath.Join(dir, "nf", "postgres"), nil
}

func candidates() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range usualFolders {
		match, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, match...)
		}
	}
	if cache, err := CacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "bin"))
	}
	return dirs
}

type tooOldError struct{ major int }

func (e *tooOldError) Error() string {
	return fmt.Sprintf("version %d, needed is %d or newer", e.major, MinVersion)
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks the postgres in dir for its version and follows links to the folder where initdb stands beside it.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	if dir == "" {
		return Binaries{}, errors.New("no folder")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	path := filepath.Join(abs, "postgres")
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	abs = filepath.Dir(path)
	if _, err := os.Stat(filepath.Join(abs, "initdb")); err != nil {
		return Binaries{}, fmt.Errorf("initdb: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output() //nolint:gosec // a program that the user named or installed
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w", path, err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return Binaries{}, fmt.Errorf("%s --version answered %q", path, out)
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return Binaries{}, err
	}
	if major < MinVersion {
		return Binaries{}, &tooOldError{major}
	}
	return Binaries{Dir: abs, Major: major}, nil
}

// installCommand says how to install the server on this platform; release is the text of os-release.
func installCommand(goos, release string) string {
	if goos == "darwin" {
		return "install them with: brew install postgresql@17"
	}
	var ids []string
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			ids = append(ids, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	for _, known := range []struct{ id, command string }{
		{"debian", "apt-get install postgresql"},
		{"ubuntu", "apt-get install postgresql"},
		{"fedora", "dnf install postgresql-server"},
		{"rhel", "dnf install postgresql-server"},
		{"suse", "zypper install postgresql-server"},
		{"arch", "pacman -S postgresql"},
		{"alpine", "apk add postgresql"},
	} {
		if slices.Contains(ids, known.id) {
			return "install them with: " + known.command
		}
	}
	return "install the PostgreSQL server of your platform"
}

func readable(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // a fixed path
	if err != nil {
		return ""
	}
	return string(text)
}
