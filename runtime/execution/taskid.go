package execution

import (
	"errors"
	"strconv"
	"strings"
)

// ErrBadTaskID says that a text is not a task id.
var ErrBadTaskID = errors.New("not a task id")

// TaskID gives the id of an attempt on the wire, `<executionId>.<task number>.<attempt>`: it locates itself (N5).
func TaskID(id UUID, taskNo, attempt int32) string {
	return id.String() + "." + strconv.FormatInt(int64(taskNo), 10) + "." + strconv.FormatInt(int64(attempt), 10)
}

// ParseTaskID reads what TaskID wrote; any other text is ErrBadTaskID.
func ParseTaskID(s string) (id UUID, taskNo, attempt int32, err error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return UUID{}, 0, 0, ErrBadTaskID
	}
	if id, err = ParseUUID(parts[0]); err != nil {
		return UUID{}, 0, 0, ErrBadTaskID
	}
	no, err1 := strconv.ParseInt(parts[1], 10, 32)
	n, err2 := strconv.ParseInt(parts[2], 10, 32)
	if err1 != nil || err2 != nil || no < 1 || n < 1 || TaskID(id, int32(no), int32(n)) != strings.ToLower(s) {
		return UUID{}, 0, 0, ErrBadTaskID
	}
	return id, int32(no), int32(n), nil
}
