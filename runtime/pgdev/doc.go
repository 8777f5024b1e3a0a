//go:build unix

// Package pgdev runs a private Postgres from the server binaries of the machine: it finds them, makes a cluster, starts it,
// takes it over after a crash and stops it. It installs nothing.
//
// # Who may connect
//
// Only the OS user who runs nf. The server has no TCP socket; its Unix socket stands in a short folder of its own, mode 0700;
// the access file holds one line, "local all nf peer", whose map names that one user; the database role is always nf.
//
// # Root
//
// Postgres refuses to run as root. Started by root, nf drops the server (not itself) to an unprivileged account, one that owns
// no other cluster where there is such a one. The data folder, mode 0700, belongs to that account; what nf writes for the
// server to read (access files) lies outside of it, in a folder of root's, so that the account cannot lead root astray by a
// link. Where the account cannot enter the project's .nf/dev, the data lies in /var/lib/nf/<hash of the folder>.
//
// # Failures
//
// nf dies (kill -9): a watchdog, a small shell that waits for the end of a pipe from nf, stops the server. If the watchdog
// died too, the next Start finds the server by its postmaster.pid, makes sure that the process is what the file says, stops it
// and goes on from its data. The server dies: Done is closed, and the next Start recovers from the write-ahead log. Two nf
// in one folder: the second is refused with the first one's process id (a lock on .nf/dev/lock, see Folder).
package pgdev
