//go:build unix

package pgdev

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// account is an OS user: the one who runs nf, or the one that the server runs as.
type account struct {
	name     string
	uid, gid uint32
}

// me is the user who runs this process.
func me() (account, error) {
	uid := os.Geteuid()
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return account{}, fmt.Errorf("the OS user with id %d has no name, and Postgres needs one: %w", uid, err)
	}
	return fromUser(u)
}

func fromUser(u *user.User) (account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid)}, nil
}

// unprivileged are the accounts that root's server may run as, best first. An account named nf is an administrator's choice;
// the next ones are on every system and own nothing; those of Postgres packages come last, since they own other clusters.
var unprivileged = []string{"nf", "nobody", "daemon", "games", "bin", "postgres", "_postgres"}

// serverAccount is who the server runs as: the same user, or for root an unprivileged one, and never one that owns another
// cluster where another is to be had (P3). An existing data folder keeps its owner.
func serverAccount(self account, data string) (account, error) {
	if self.uid != 0 {
		return self, nil
	}
	if info, err := os.Lstat(data); err == nil {
		uid := ownerOf(info)
		if uid == 0 {
			return account{}, fmt.Errorf("%s belongs to root, and Postgres does not run as root: remove it", data)
		}
		u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
		if err != nil {
			return account{}, fmt.Errorf("owner of %s: %w", data, err)
		}
		return fromUser(u)
	}
	owners := clusterOwners()
	var fallback *account
	for _, name := range unprivileged {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		a, err := fromUser(u)
		if err != nil || a.uid == 0 {
			continue
		}
		if !slices.Contains(owners, a.uid) {
			return a, nil
		}
		if fallback == nil {
			fallback = &a
		}
	}
	if fallback == nil {
		return account{}, errors.New("Postgres does not run as root, and none of the accounts " + strings.Join(unprivileged, ", ") +
			" exists: make one (useradd --system nf) or run nf as another user")
	}
	return *fallback, nil
}

// clusterFolders are where packages keep clusters.
var clusterFolders = []string{
	"/var/lib/postgresql/*/*", "/var/lib/postgresql/*", "/var/lib/postgresql", "/var/lib/pgsql/*/data", "/var/lib/pgsql/data",
	"/var/lib/postgres/data", "/usr/local/var/postgres*", "/opt/homebrew/var/postgresql*", "/usr/local/pgsql/data",
}

// clusterOwners lists the users that own a cluster which is not nf's: by the folders of packages and by running servers.
func clusterOwners() []uint32 {
	var owners []uint32
	for _, pattern := range clusterFolders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			if info, err := os.Lstat(dir); err == nil {
				owners = append(owners, ownerOf(info))
			}
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return owners
	}
	for _, process := range processes {
		args, err := os.ReadFile(filepath.Join(process, "cmdline")) //nolint:gosec // of the process table
		if err != nil {
			continue
		}
		words := bytes.Split(args, []byte{0})
		program := filepath.Base(string(words[0]))
		if (program != "postgres" && program != "postmaster") || bytes.Contains(args, []byte(ownMark)) {
			continue
		}
		if info, err := os.Lstat(process); err == nil {
			owners = append(owners, ownerOf(info))
		}
	}
	return owners
}

// credential makes a child run as a, or nil if that is who we are.
func (a account) credential() *syscall.Credential {
	if int64(a.uid) == int64(os.Geteuid()) {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{}}
}

// canEnter tells whether a can enter dir and run the binaries there is: the kernel is asked, since modes, groups and access
// lists together decide.
func (a account) canEnter(dir string, b Binaries) bool {
	cmd := exec.Command(filepath.Join(b.Dir, "postgres"), "--version") //nolint:gosec,noctx // ends by itself
	cmd.Dir = dir
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
	return cmd.Run() == nil
}

func ownerOf(info os.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}
