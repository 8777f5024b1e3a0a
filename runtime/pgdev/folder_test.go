//go:build unix

package pgdev_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/runtime/pgdev"
)

func TestP3_SecondNfOnAFolderIsRefusedWithThePid(t *testing.T) {
	t.Parallel()
	project := openProject(t)
	first := startChild(t, project)
	_, err := pgdev.OpenFolder(t.Context(), project)
	var busy *pgdev.InUseError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, first.cmd.Process.Pid, busy.PID)

	state, err := pgdev.ReadState(project)
	require.NoError(t, err)
	require.Equal(t, first.cmd.Process.Pid, state.PID)
	require.Equal(t, first.url, state.DatabaseURL)
}

func TestP3_LinksAndForeignOwnersAtOrBelowNfAreErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(t *testing.T, project, elsewhere string)
		want string
	}{
		{".nf is a link", func(t *testing.T, project, elsewhere string) {
			t.Helper()
			require.NoError(t, os.Symlink(elsewhere, filepath.Join(project, ".nf")))
		}, "is a link"},
		{".nf/dev is a link", func(t *testing.T, project, elsewhere string) {
			t.Helper()
			require.NoError(t, os.Mkdir(filepath.Join(project, ".nf"), 0o755))
			require.NoError(t, os.Symlink(elsewhere, filepath.Join(project, ".nf", "dev")))
		}, "is a link"},
		{"the lock is a link", linkInDev("lock"), "is a link"},
		{"the state is a link", linkInDev("state.json"), "is a link"},
		{"the data is a link", linkInDev("postgres"), "is a link"},
		{"any file is a link", linkInDev("something"), "is a link"},
		{"a hard link", func(t *testing.T, project, elsewhere string) {
			t.Helper()
			dev := filepath.Join(project, ".nf", "dev")
			require.NoError(t, os.MkdirAll(dev, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "file"), nil, 0o600))
			require.NoError(t, os.Link(filepath.Join(elsewhere, "file"), filepath.Join(dev, "lock")))
		}, "hard links"},
		{".nf is a file", func(t *testing.T, project, _ string) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(project, ".nf"), nil, 0o600))
		}, "is not a folder"},
		{"another owner", func(t *testing.T, project, _ string) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Join(project, ".nf", "dev"), 0o755))
			if os.Geteuid() == 0 {
				require.NoError(t, os.Chown(filepath.Join(project, ".nf"), 12345, 12345))
				return
			}
			// Only root can give a folder away; a link stands for it elsewhere.
			require.NoError(t, os.Symlink("/", filepath.Join(project, ".nf", "dev", "root")))
		}, map[bool]string{true: "belongs to the OS user 12345", false: "is a link"}[os.Geteuid() == 0]},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			project, elsewhere := openProject(t), openProject(t)
			c.make(t, project, elsewhere)
			_, err := pgdev.OpenFolder(t.Context(), project)
			require.ErrorContains(t, err, c.want)
			left, err := os.ReadDir(elsewhere)
			require.NoError(t, err)
			for _, e := range left {
				require.Equal(t, "file", e.Name(), "nothing is written through a link")
			}
		})
	}
}

func linkInDev(name string) func(*testing.T, string, string) {
	return func(t *testing.T, project, elsewhere string) {
		t.Helper()
		dev := filepath.Join(project, ".nf", "dev")
		require.NoError(t, os.MkdirAll(dev, 0o755))
		require.NoError(t, os.Symlink(filepath.Join(elsewhere, name), filepath.Join(dev, name)))
	}
}

func TestN10_StateCountsOnlyWhileItsProcessHoldsTheLock(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	_, err := pgdev.ReadState(project)
	require.ErrorIs(t, err, pgdev.ErrNotLive, "no .nf")
	folder, err := pgdev.OpenFolder(t.Context(), project)
	require.NoError(t, err)
	_, err = pgdev.ReadState(project)
	require.ErrorIs(t, err, pgdev.ErrNotLive, "no state yet")

	good := pgdev.State{DatabaseURL: "postgres:///nf?host=%2Ftmp%2Fnf-1&user=nf", URL: "http://127.0.0.1:7420", APIKey: "nf_x"}
	require.NoError(t, folder.WriteState(good))
	require.NoError(t, folder.WriteState(good), "again")
	state, err := pgdev.ReadState(project)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), state.PID)
	require.Equal(t, good.APIKey, state.APIKey)
	path := filepath.Join(project, ".nf", "dev", "state.json")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	for _, bad := range []pgdev.State{
		{DatabaseURL: "postgres://db.example.com/nf", URL: good.URL},
		{DatabaseURL: "postgres://127.0.0.1/nf", URL: good.URL},
		{DatabaseURL: good.DatabaseURL, URL: "http://example.com:7420"},
		{DatabaseURL: good.DatabaseURL, URL: "http://192.168.0.1:7420"},
		{DatabaseURL: good.DatabaseURL, URL: "https://127.0.0.1.example.com"},
	} {
		require.NoError(t, folder.WriteState(bad))
		_, err := pgdev.ReadState(project)
		require.Error(t, err, "%+v", bad)
		require.NotErrorIs(t, err, pgdev.ErrNotLive)
	}

	require.NoError(t, folder.WriteState(good))
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = pgdev.ReadState(project)
	require.ErrorContains(t, err, "must be 0600")
	require.NoError(t, os.Chmod(path, 0o600))

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, folder.Close())
	require.NoFileExists(t, path, "a clean end takes the state along")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err = pgdev.ReadState(project)
	require.ErrorIs(t, err, pgdev.ErrNotLive, "nobody holds the lock")
}

func TestN10_StateOfAnotherProcessThanTheLockHolderDoesNotCount(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	folder, err := pgdev.OpenFolder(t.Context(), project)
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Close()) }()
	require.NoError(t, folder.WriteState(pgdev.State{DatabaseURL: "postgres:///nf?host=%2Ftmp%2Fnf-1"}))
	path := filepath.Join(project, ".nf", "dev", "state.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	forged := strings.Replace(string(text), `"pid": `, `"pid": 1`, 1)
	require.NoError(t, os.WriteFile(path, []byte(forged), 0o600))
	_, err = pgdev.ReadState(project)
	require.ErrorIs(t, err, pgdev.ErrNotLive)
}

func TestP3_SecretIsMadeOnceAndClosed(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	folder, err := pgdev.OpenFolder(t.Context(), project)
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Close()) }()
	made := 0
	create := func() (string, error) { made++; return "secret", nil }
	for range 2 {
		text, err := folder.Secret("key", create)
		require.NoError(t, err)
		require.Equal(t, "secret", text)
	}
	require.Equal(t, 1, made)
	path := filepath.Join(folder.Path(), "key")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Chmod(path, 0o640))
	_, err = folder.Secret("key", create)
	require.ErrorContains(t, err, "must be 0600")
	_, err = folder.Secret("other", func() (string, error) { return "", errors.New("no dice") })
	require.ErrorContains(t, err, "no dice")
}

func TestN10_NfKeepsItselfOutOfGit(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	for range 2 {
		folder, err := pgdev.OpenFolder(t.Context(), project)
		require.NoError(t, err)
		require.NoError(t, folder.Close())
	}
	text, err := os.ReadFile(filepath.Join(project, ".nf", ".gitignore"))
	require.NoError(t, err)
	require.Contains(t, string(text), "/dev/\n")
}
