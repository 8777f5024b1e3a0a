//go:build unix

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"nf/runtime/pgdev"
)

// read runs a command line through the real parser and gives what a command would see.
func read(t *testing.T, env map[string]string, line ...string) (settings, *cli.Context, error) {
	t.Helper()
	sh := &shell{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, stdin: &bytes.Buffer{}, env: environ{}}
	for k, v := range env {
		if v != "" {
			sh.env[k] = v
		}
	}
	app := sh.app()
	look := &cli.Command{Name: "look", Action: sh.action(0, -1, "", func() error { return nil })}
	finish(look)
	app.Commands = append(app.Commands, look)
	arranged, err := arrange(app, append([]string{"nf", "look"}, line...))
	if err == nil {
		err = app.RunContext(t.Context(), arranged.argv)
	}
	return sh.settings, sh.c, err
}

// liveDev makes a folder in which an nf dev seems to run: this process holds its lock.
func liveDev(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nf.yaml"), []byte("apiVersion: nf/v1\nkind: Project\nmetadata: {name: p}\n"), 0o600))
	f, err := pgdev.OpenFolder(t.Context(), dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.WriteState(pgdev.State{
		DatabaseURL: "postgres:///nf?host=/tmp/x", DataDir: "/tmp/x", URL: "http://127.0.0.1:1234", APIKey: "dev-key",
	}))
	return dir
}

// TestN10_Order: flag, then variable, then the live nf dev of the folder, then what is built in.
func TestN10_Order(t *testing.T) {
	t.Parallel()
	dir := liveDev(t)
	for _, c := range []struct {
		name      string
		env       map[string]string
		line      []string
		want      setting
		wantError string
	}{
		{"flag", map[string]string{"NF_DATABASE_URL": "env"}, []string{"-C", dir, "--database-url", "flag"}, setting{"flag", fromFlag, "--database-url"}, ""},
		{"variable", map[string]string{"NF_DATABASE_URL": "env"}, []string{"-C", dir}, setting{"env", fromEnv, "NF_DATABASE_URL"}, ""},
		{"empty variable", map[string]string{"NF_DATABASE_URL": ""}, []string{"-C", dir}, setting{"postgres:///nf?host=/tmp/x", fromState, "nf dev"}, ""},
		{"state", nil, []string{"-C", dir}, setting{"postgres:///nf?host=/tmp/x", fromState, "nf dev"}, ""},
		{"folder by variable", map[string]string{"NF_PROJECT_DIR": dir}, nil, setting{"postgres:///nf?host=/tmp/x", fromState, "nf dev"}, ""},
		{"nothing", nil, []string{"-C", t.TempDir()}, setting{}, "no database"},
		{"both", map[string]string{"NF_DATABASE_URL": "a", "NF_DATABASE_URL_FILE": "b"}, []string{"-C", dir}, setting{}, "both set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, ctx, err := read(t, c.env, c.line...)
			require.NoError(t, err)
			got, err := s.database(ctx)
			if c.wantError != "" {
				require.ErrorContains(t, err, c.wantError)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestKeyGoesOnlyToAURLOfTheSameStep (contract 5.4): never the key of one source to the address of another.
func TestKeyGoesOnlyToAURLOfTheSameStep(t *testing.T) {
	t.Parallel()
	dir := liveDev(t)
	for _, c := range []struct {
		name     string
		env      map[string]string
		line     []string
		url, key string
		code     int
	}{
		{"both of the state", nil, nil, "http://127.0.0.1:1234", "dev-key", 0},
		{"both of the environment", map[string]string{"NF_URL": "https://x", "NF_API_KEY": "k"}, nil, "https://x", "k", 0},
		{"flag and environment", map[string]string{"NF_API_KEY": "k"}, []string{"--url", "https://y"}, "https://y", "k", 0},
		{"URL given, key only in the state", map[string]string{"NF_URL": "https://x"}, nil, "", "", exitUsage},
		{"URL by flag, key only in the state", nil, []string{"--url", "https://evil"}, "", "", exitUsage},
		{"key given, URL only in the state", map[string]string{"NF_API_KEY": "k"}, nil, "", "", exitUsage},
		{"both forms of the key", map[string]string{"NF_URL": "https://x", "NF_API_KEY": "k", "NF_API_KEY_FILE": "f"}, nil, "", "", exitUsage},
		{"no URL", map[string]string{"NF_URL": "ftp://x", "NF_API_KEY": "k"}, nil, "", "", exitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, ctx, err := read(t, c.env, append([]string{"-C", dir}, c.line...)...)
			require.NoError(t, err)
			url, key, err := s.api(ctx)
			require.Equal(t, c.code, codeOf(err), "%v", err)
			if c.code == 0 {
				require.Equal(t, c.url, url.value)
				require.Equal(t, c.key, key.value)
			}
		})
	}
}

// TestStateTrackedByGitDoesNotCount: a checkout could bring it along and lead a key astray.
func TestStateTrackedByGitDoesNotCount(t *testing.T) {
	t.Parallel()
	dir := liveDev(t)
	for _, args := range [][]string{{"init", "-q", "."}, {"add", "-f", ".nf/dev/state.json"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	s, ctx, err := read(t, nil, "-C", dir)
	require.NoError(t, err)
	_, err = s.database(ctx)
	require.ErrorContains(t, err, "no nf dev runs")
}

// TestDatabaseIsShownWithoutUser: a URL may hold a password.
func TestDatabaseIsShownWithoutUser(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://me:secret@db.example.org:5432/nf?sslmode=require": "db.example.org:5432/nf",
		"postgresql:///nf?host=/run/pg":                               "/run/pg/nf",
		"host=x user=me password=secret dbname=nf":                    "the database",
		"postgres://me:sec ret@x/nf":                                  "the database",
	} {
		require.Equal(t, want, redactURL(url))
	}
}

// TestExitCodes holds the order of codes (contract 5.3), and that an error's code survives wrapping.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	require.Equal(t, exitUsage, worst(exitChanges, exitFailed, exitUsage))
	require.Equal(t, exitFailed, worst(exitFindings, exitFailed, exitRefused))
	require.Equal(t, exitFindings, worst(exitStale, exitRefused, exitFindings))
	require.Equal(t, exitRefused, worst(exitStale, exitRefused, exitChanges))
	require.Equal(t, exitStale, worst(exitChanges, exitStale))
	require.Equal(t, exitOK, worst(exitOK))
	require.Equal(t, exitRefused, codeOf(errors.Join(refused("x"))))
	require.Equal(t, exitFailed, codeOf(errors.New("x")))
}
