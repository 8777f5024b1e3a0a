package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// files writes files below dir; a content that begins with "-> " makes a link.
func files(t *testing.T, dir string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// lines is a Selection for tests: roots are the lines of nf.yaml, a manifest names the files in its lines "use: path".
var lines = Selection{
	Roots: func(project []byte) []string { return strings.Fields(string(project)) },
	Follow: func(_ string, data []byte) []string {
		var out []string
		for line := range strings.Lines(string(data)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "use: "); ok {
				out = append(out, name)
			}
		}
		return out
	},
}

func paths(s Snapshot) []string {
	var out []string
	for _, f := range s.Files {
		out = append(out, f.Path)
	}
	return out
}

func codes(s Snapshot) []string {
	var out []string
	for _, f := range s.Findings {
		out = append(out, fmt.Sprintf("%s %s%s", f.Code, f.File, f.Pointer))
	}
	return out
}

// both runs a test on the files of a folder and on the same files in a commit.
func both(t *testing.T, content map[string]string, check func(t *testing.T, s Snapshot)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		files(t, dir, content)
		s, err := ReadDir(dir, lines)
		require.NoError(t, err)
		check(t, s)
	})
	t.Run("commit", func(t *testing.T) {
		t.Parallel()
		r := newRepo(t)
		files(t, r.dir, content)
		r.commit("all")
		s, err := ReadGit(t.Context(), r.dir, lines)
		require.NoError(t, err)
		require.False(t, s.Dirty, s.Changed)
		check(t, s)
	})
}

func TestSelection(t *testing.T) {
	t.Parallel()
	both(t, map[string]string{
		"nf.yaml": "", "a.yaml": "use: proto/a.proto\nuse: protos/\nuse: missing.proto\nuse: ../out.proto\nuse: /etc/passwd\n", "b.yml": "", "c.json": "{}",
		"d.txt": "", "deep/er/e.yaml": "", ".hidden.yaml": "", "_draft.yaml": "", ".git2/x.yaml": "", "_d/x.yaml": "", "x.yaml~": "", "#x.yaml#": "",
		".#x.yaml": "", ".x.yaml.swp": "", "4913": "", "proto/a.proto": "use: proto/b.proto", "proto/b.proto": "", "proto/c.proto": "", "protos/x/d.proto": "",
		".nfignore": "# build\nbuild/\n*.gen.yaml\n!keep.gen.yaml\n/top.yaml\n**/tmp/**\n", "build/x.yaml": "", "x.gen.yaml": "", "keep.gen.yaml": "",
		"top.yaml": "", "deep/top.yaml": "", "deep/tmp/x.yaml": "",
	}, func(t *testing.T, s Snapshot) {
		require.Empty(t, s.Findings)
		require.Equal(t, []string{
			"a.yaml", "b.yml", "c.json", "deep/er/e.yaml", "deep/top.yaml", "keep.gen.yaml", "proto/a.proto", "proto/b.proto", "protos/x/d.proto",
		}, paths(s))
		a, ok := s.File("proto/a.proto")
		require.True(t, ok)
		require.Equal(t, "use: proto/b.proto", string(a))
	})
}

func TestRoots(t *testing.T) {
	t.Parallel()
	both(t, map[string]string{
		"nf.yaml": "defs\n./_own/\nmissing\n../out\n/abs\nfile.yaml\ndefs/in", "defs/a.yaml": "", "defs/in/b.yaml": "", "_own/c.yaml": "", "other/d.yaml": "", "file.yaml": "",
	}, func(t *testing.T, s Snapshot) {
		require.Equal(t, []string{"_own/c.yaml", "defs/a.yaml", "defs/in/b.yaml"}, paths(s))
		require.ElementsMatch(t, []string{
			"NF7002 nf.yaml/spec/roots/2", "NF7002 nf.yaml/spec/roots/3", "NF7002 nf.yaml/spec/roots/4", "NF7002 nf.yaml/spec/roots/5",
		}, codes(s))
	})
}

func TestLinks(t *testing.T) {
	t.Parallel()
	both(t, map[string]string{
		"nf.yaml": "defs", "defs/a.yaml": "text of a", "defs/again.yaml": "-> a.yaml", "defs/data.yaml": "-> ../.data/x.yaml", ".data": "-> .v1", ".v1/x.yaml": "x",
		"defs/out.yaml": "-> ../../out.yaml", "defs/abs.yaml": "-> /etc/passwd", "defs/gone.yaml": "-> nowhere", "defs/loop.yaml": "-> loop.yaml",
		"defs/up": "-> ..", "defs/readme.md": "-> /etc/passwd", "defs/dir": "-> ../more", "more/m.yaml": "m", "more/back": "-> ../defs",
		"defs/.skipped.yaml": "-> /etc/passwd", "defs/outdir": "-> /etc", "defs/tricky.yaml": "-> ../more/../../x.yaml",
	}, func(t *testing.T, s Snapshot) {
		require.Equal(t, []string{"defs/a.yaml", "defs/data.yaml", "defs/dir/m.yaml"}, paths(s))
		require.Equal(t, []string{
			"NF7003 defs/abs.yaml", "NF1001 defs/gone.yaml", "NF1001 defs/loop.yaml", "NF7003 defs/out.yaml", "NF7003 defs/outdir", "NF7003 defs/tricky.yaml",
		}, codes(s))
		data, _ := s.File("defs/data.yaml")
		require.Equal(t, "x", string(data))
	})
}

func TestP06_RootIsALinkLoop(t *testing.T) {
	t.Parallel()
	both(t, map[string]string{"nf.yaml": "defs", "defs": "-> other", "other": "-> defs"}, func(t *testing.T, s Snapshot) {
		require.Equal(t, []string{"NF7002 nf.yaml/spec/roots/0"}, codes(s))
		require.Contains(t, s.Findings[0].Message, "loop")
	})
}

func TestRootLeaves(t *testing.T) {
	t.Parallel()
	both(t, map[string]string{"nf.yaml": "defs", "defs": "-> ../.."}, func(t *testing.T, s Snapshot) {
		require.Equal(t, []string{"NF7003 defs"}, codes(s))
	})
}

func TestNoProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := ReadDir(dir, lines)
	require.NoError(t, err)
	require.Equal(t, []string{"NF7001 nf.yaml"}, codes(s))
	files(t, dir, map[string]string{"nf.yml": ""})
	s, err = ReadDir(dir, lines)
	require.NoError(t, err)
	require.Equal(t, "rename nf.yml to nf.yaml", s.Findings[0].Hint)
	_, err = ReadDir(filepath.Join(dir, "missing"), lines)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPipeDoesNotHang(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files(t, dir, map[string]string{"nf.yaml": ""})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "x.yaml"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "x.txt"), 0o600))
	s, err := ReadDir(dir, lines)
	require.NoError(t, err)
	require.Equal(t, []string{"NF1001 x.yaml"}, codes(s))
}

func TestDigestCoversAllThatIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files(t, dir, map[string]string{"nf.yaml": "", "a.yaml": "use: x.proto", "x.proto": "1", "notes.txt": "1", ".nfignore": "z"})
	digest := func() [32]byte {
		s, err := ReadDir(dir, lines)
		require.NoError(t, err)
		return s.Digest
	}
	before := digest()
	require.Equal(t, before, digest())
	for name, text := range map[string]string{"x.proto": "2", "a.yaml": "use: x.proto\n#", "nf.yaml": "./", ".nfignore": "zz"} {
		old, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		require.NotEqual(t, before, digest(), name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), old, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("2"), 0o600))
	require.Equal(t, before, digest())
	require.NoError(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")))
	require.NotEqual(t, before, digest())
}

// TestFolderThatMoves changes the folder between the read and the second look.
func TestFolderThatMoves(t *testing.T) {
	t.Parallel()
	moves := map[string]func(dir string, n int) error{
		"content": func(dir string, n int) error {
			return os.WriteFile(filepath.Join(dir, "a.yaml"), fmt.Appendf(nil, "%0*d", n+1, 0), 0o600)
		},
		"new file": func(dir string, n int) error {
			return os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%d.yaml", n)), nil, 0o600)
		},
		"file in deep": func(dir string, n int) error {
			return os.WriteFile(filepath.Join(dir, "d", fmt.Sprintf("n%d.yaml", n)), nil, 0o600)
		},
		"link": func(dir string, n int) error {
			tmp := filepath.Join(dir, ".tmp")
			if err := os.Symlink(fmt.Sprintf("v%d", n), tmp); err != nil {
				return err
			}
			return os.Rename(tmp, filepath.Join(dir, ".data"))
		},
	}
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files(t, dir, map[string]string{"nf.yaml": "", "a.yaml": "", "d/b.yaml": "", ".data": "-> v9", "v9/x.txt": "", "l.yaml": "-> .data/x.txt", "v0/x.txt": "", "v1/x.txt": ""})
			n := 0
			_, err := readDir(dir, lines, DefaultLimits(), func() { require.NoError(t, move(dir, n)); n++ })
			require.ErrorIs(t, err, ErrBusy)
			require.Equal(t, maxReads, n)

			_, err = readDir(dir, lines, DefaultLimits(), func() {
				if n < maxReads+2 {
					require.NoError(t, move(dir, n))
				}
				n++
			})
			require.NoError(t, err, "it came to rest")
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files(t, dir, map[string]string{"nf.yaml": "", "a.yaml": "12345", "b.yaml": "1234567", "c.yaml": "use: d.proto", "d.proto": "123456789"})
	read := func(change func(*Limits)) []string {
		l := DefaultLimits()
		change(&l)
		s, err := readDir(dir, lines, l, func() {})
		require.NoError(t, err)
		return codes(s)
	}
	require.Equal(t, []string{"NF1016 b.yaml", "NF1016 c.yaml"}, read(func(l *Limits) { l.FileBytes = 6 }))
	require.Equal(t, []string{"NF1016 d.proto"}, read(func(l *Limits) { l.NamedBytes = 6 }))
	require.Equal(t, []string{"NF1016 c.yaml"}, read(func(l *Limits) { l.Files = 2 }))
	require.Equal(t, []string{"NF1016 b.yaml"}, read(func(l *Limits) { l.TotalBytes = 6 }))
}
