//go:build unix

package pgdev //nolint:testpackage // the command for a platform is asked for other platforms

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestP3_FindTakesTheFolderThatIsNamedAndNoOther(t *testing.T) {
	t.Parallel()
	_, err := Find(t.Context(), t.TempDir())
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, "NF_PG_BIN")

	found, err := Find(t.Context(), "")
	require.NoError(t, err)
	require.GreaterOrEqual(t, found.Major, MinVersion)
	require.FileExists(t, filepath.Join(found.Dir, "initdb"))

	named, err := FindAll(t.Context(), found.Dir)
	require.NoError(t, err)
	require.Equal(t, []Binaries{found}, named)
}

func TestP3_FindRefusesOldAndStrangeBinaries(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"echo 'postgres (PostgreSQL) 14.11'": "version 14, needed is 15",
		"echo something else":                `answered "something else`,
		"exit 3":                             "exit status 3",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "initdb"), nil, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), []byte("#!/bin/sh\n"+answer+"\n"), 0o755))
		_, err := Find(t.Context(), dir)
		require.ErrorIs(t, err, ErrNoBinaries)
		require.ErrorContains(t, err, want)
	}
}

func TestP3_MissingBinariesNameTheCommandOfThePlatform(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ goos, release, want string }{
		{"linux", "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n", "apt-get install postgresql"},
		{"linux", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt-get install postgresql"},
		{"linux", "ID=fedora\n", "dnf install postgresql-server"},
		{"linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install postgresql-server"},
		{"linux", "ID=alpine\n", "apk add postgresql"},
		{"linux", "", "install the PostgreSQL server of your platform"},
		{"darwin", "", "brew install"},
	} {
		require.Contains(t, installCommand(c.goos, c.release), c.want, c.release)
	}
}
