package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"nf/runtime/execution"
)

// AttemptKey names an open attempt where a fact says it is. Fence is that of a lease, 0 elsewhere.
type AttemptKey struct {
	execution.ID
	TaskNo  int32
	Attempt int32
	Place   execution.Place
	Fence   int64
}

// OpenAttempt is a locked open attempt and the execution it belongs to.
type OpenAttempt struct {
	execution.ID
	execution.Attempt
}

// Key gives the attempt's key.
func (a OpenAttempt) Key() AttemptKey {
	return AttemptKey{ID: a.ID, TaskNo: a.TaskNo, Attempt: a.Attempt.Attempt, Place: a.Place, Fence: a.Fence}
}

// TaskKey names a task run of an execution. Task 0 is the execution itself.
type TaskKey struct {
	execution.ID
	TaskNo int32
}

// MarkWhat says what a mark stands for (nf_decide.what).
type MarkWhat int16

// The marks of wave 1.
const (
	MarkAttemptEnded MarkWhat = 1 // a result that was recorded and not decided
	MarkChunk        MarkWhat = 4 // go on: operators beyond 64 rounds, or the rest of an end by force
	MarkAdmitted     MarkWhat = 5 // the first evaluation
	MarkDecide       MarkWhat = 7 // an evaluation that somebody asked for
)

// Mark is a fact that no evaluation has seen.
type Mark struct {
	execution.ID
	FactID  int64
	What    MarkWhat
	TaskNo  int32
	Attempt int32
	Since   time.Time
	DueAt   time.Time
	Tries   int32
	Detail  string // JSON that belongs to What, or ""
}

// Lease is a lease that a transaction of the engine made at once for its own process.
type Lease struct {
	TaskKey
	Attempt    int32
	Fence      int64
	LeasedAt   time.Time
	LeaseUntil time.Time // zero with a holder: the runner's own row holds instead
	BeatBy     time.Time
	CloseBy    time.Time
	LeaseMs    int64
}

// Seat says for whom next work is leased at once. Holder 0 is a long poll of this process.
type Seat struct {
	Holder  int32
	ClaimID int64
	LeaseMs int64
	Worker  string
}

// Recorded is an attempt whose result was recorded without a decision.
type Recorded struct {
	execution.ID
	Row execution.TaskRow
}

// Closed is an execution at its end, as nf_exec_closed keeps it.
type Closed struct {
	Header    execution.Header
	Seq       int64
	EndedAt   time.Time
	Status    execution.Status
	Cause     execution.Cause
	Reason    string
	FailedNo  int32
	FailedRef string
	OutputNo  int32
	Frames    []byte
}

// table is the parameters of one statement that takes arrays of equal length.
type table struct {
	name string
	cols []*column
	args []any
}

func newTable(name string, elems ...uint32) *table {
	t := &table{name: name, cols: make([]*column, len(elems)), args: make([]any, len(elems))}
	for i, e := range elems {
		t.cols[i] = newColumn(e)
		t.args[i] = t.cols[i]
	}
	return t
}

func (t *table) rows() int { return int(t.cols[0].n) }

func (t *table) reset() {
	for _, c := range t.cols {
		c.reset()
	}
}

// id writes the two columns that name an execution.
func (t *table) id(id execution.ID) {
	t.cols[0].i32(id.NS)
	t.cols[1].uuid(id.Exec)
}

// The OIDs of elements, short.
const (
	oBool = pgtype.BoolOID
	oByte = pgtype.ByteaOID
	oI16  = pgtype.Int2OID
	oI32  = pgtype.Int4OID
	oI64  = pgtype.Int8OID
	oText = pgtype.TextOID
	oTime = pgtype.TimestamptzOID
	oUUID = pgtype.UUIDOID
)
