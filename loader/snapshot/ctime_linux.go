package snapshot

import (
	"io/fs"
	"syscall"
)

// changedAt is the time of a file's last change of any kind. Unlike the time of its last write nobody can set it back.
func changedAt(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}
