package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
)

// Brief is how an execution stands.
type Brief struct {
	RevID    int32
	Revision int32
	Seq      int64
	Status   execution.Status // zero = open
}

// Brief reads how an execution stands; ErrNotFound if there is none, or its day is gone.
func (s *Store) Brief(ctx context.Context, id execution.ID) (b Brief, err error) {
	err = s.readOne(ctx, "read-brief", id, func(ctx context.Context, t *Tx) (found bool, err error) {
		rows, err := t.query(ctx, "read_brief_open", "", id.NS, id.Exec)
		if err != nil {
			return false, err
		}
		err = each(rows, func(r *row) error {
			b, found = Brief{RevID: r.i32(), Seq: r.i64(), Revision: r.i32()}, true
			return nil
		})
		return found, err
	}, func(ctx context.Context, t *Tx) (found bool, err error) {
		rows, err := t.query(ctx, "read_brief_closed", id.Exec.Day(), id.NS, id.Exec)
		if err != nil {
			return false, err
		}
		err = each(rows, func(r *row) error {
			b, found = Brief{RevID: r.i32(), Seq: r.i64(), Revision: r.i32(), Status: execution.Status(r.i16())}, true
			return nil
		})
		return found, err
	})
	return b, err
}

// readOne reads an execution from the open ones, else from its leaf of the closed ones: one that closes between the two is found by the
// second. ErrNotFound if it is in neither, or its day is gone (42P01).
func (s *Store) readOne(ctx context.Context, name string, id execution.ID, open, closed func(context.Context, *Tx) (bool, error)) error {
	err := s.InTx(ctx, API, name, func(ctx context.Context, t *Tx) error {
		if found, err := open(ctx, t); found || err != nil {
			return err
		}
		found, err := closed(ctx, t)
		if err == nil && !found {
			err = ErrNotFound
		}
		return err
	})
	if Code(err) == "42P01" {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("execution %s: %w", id.Exec, err)
	}
	return nil
}

// ExecutionRow is an execution as GET shows it.
type ExecutionRow struct {
	execution.ID
	Open       bool
	Seq        int64
	StartedAt  time.Time
	AdmittedAt time.Time
	EndedAt    time.Time
	DeadlineAt time.Time
	DefID      int32
	RevID      int32
	Reruns     int32
	Priority   int16
	Status     execution.Status // zero = open
	Cause      execution.Cause
	Reason     string
	FailedNo   int32
	FailedRef  string
	OutputNo   int32
	Input      []byte // nil = not asked for
	Output     []byte // nil = none, or not asked for
	Variables  map[string][]byte
	VarsText   []byte // of a closed one: a JSON object
	Scopes     []execution.Scope
}

// Include says what of an execution is read beside its header.
type Include struct {
	Input     bool
	Output    bool
	Variables bool
	Scopes    bool
}

// Execution reads one execution; ErrNotFound if there is none, or its day is gone.
func (s *Store) Execution(ctx context.Context, id execution.ID, with Include) (out ExecutionRow, err error) {
	err = s.readOne(ctx, "read-execution", id, func(ctx context.Context, t *Tx) (bool, error) {
		return t.openExecution(ctx, id, with, &out)
	}, func(ctx context.Context, t *Tx) (bool, error) {
		return t.closedExecution(ctx, id, with, &out)
	})
	return out, err
}

func (t *Tx) openExecution(ctx context.Context, id execution.ID, with Include, out *ExecutionRow) (bool, error) {
	rows, err := t.query(ctx, "read_exec_open", "", id.NS, id.Exec)
	if err != nil {
		return false, err
	}
	found := false
	err = each(rows, func(r *row) error {
		h := readHeader(r)
		*out = ExecutionRow{
			ID: h.ID, Open: true, Seq: h.Seq, StartedAt: h.StartedAt, AdmittedAt: h.AdmittedAt, DefID: h.DefID, RevID: h.RevID,
			Reruns: h.Reruns, Priority: h.Priority, DeadlineAt: r.time(),
		}
		found = true
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	p := t.pipeline()
	if with.Input {
		payloadInto(p, id, 0, PartInput, &out.Input)
	}
	if with.Variables {
		out.Variables = map[string][]byte{}
		p.queue("read_vars", "", []any{id.NS, id.Exec}, reader(func(r *row) error { out.Variables[r.text()] = r.bytes(); return nil }))
	}
	if with.Scopes {
		p.queue("read_scopes", "", []any{id.NS, id.Exec}, reader(func(r *row) error {
			_, scope := readScope(r)
			out.Scopes = append(out.Scopes, scope)
			return nil
		}))
	}
	if err := p.send(ctx); err != nil {
		return false, err
	}
	if with.Input && out.Input == nil {
		out.Input = []byte("{}")
	}
	return true, nil
}

func payloadInto(p *pipeline, id execution.ID, taskNo int32, part int16, into *[]byte) {
	p.queue("read_payload", id.Exec.Day(), []any{id.NS, id.Exec, taskNo, part}, reader(func(r *row) (err error) {
		*into, err = unpack(r.i16(), r.bytes())
		return err
	}))
}

func (t *Tx) closedExecution(ctx context.Context, id execution.ID, with Include, out *ExecutionRow) (bool, error) {
	rows, err := t.query(ctx, "read_exec_closed", id.Exec.Day(), id.NS, id.Exec)
	if err != nil {
		return false, err
	}
	found := false
	err = each(rows, func(r *row) error {
		*out = ExecutionRow{
			ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, Seq: r.i64(), StartedAt: r.time(), AdmittedAt: r.time(), EndedAt: r.time(),
			DefID: r.i32(), RevID: r.i32(), Reruns: r.i32(), Status: execution.Status(r.i16()), Priority: r.i16(),
		}
		_ = r.i16() // depth
		out.Cause, out.Reason = execution.Cause(r.text()), r.text()
		out.FailedNo, out.FailedRef, out.OutputNo = r.i32(), r.text(), r.i32()
		found = true
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	p := t.pipeline()
	if with.Input {
		payloadInto(p, id, 0, PartInput, &out.Input)
	}
	if with.Output && out.OutputNo == 0 {
		payloadInto(p, id, 0, PartOutput, &out.Output)
	}
	if with.Output && out.OutputNo != 0 {
		p.queue("read_output_of", id.Exec.Day(), []any{id.NS, id.Exec, out.OutputNo}, reader(func(r *row) (err error) {
			out.Output, err = unpack(r.i16(), r.bytes())
			return err
		}))
	}
	if with.Variables {
		payloadInto(p, id, 0, PartVariables, &out.VarsText)
	}
	if err := p.send(ctx); err != nil {
		return false, err
	}
	if with.Input && out.Input == nil {
		out.Input = []byte("{}")
	}
	if with.Output && out.OutputNo != 0 && out.Output == nil {
		out.Output = []byte("{}")
	}
	return true, nil
}

// Seq gives the last event of an open execution; open is false if it is not (or no longer) open.
func (s *Store) Seq(ctx context.Context, id execution.ID) (seq int64, open bool, err error) {
	err = s.InTx(ctx, API, "read-seq", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "read_seq", "", id.NS, id.Exec)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { seq, open = r.i64(), true; return nil })
	})
	return seq, open, err
}

// ListFilter selects executions of one namespace.
type ListFilter struct {
	NS       int32
	DefID    int32              // 0 = all workflows
	Running  bool               // include open ones
	Statuses []execution.Status // terminal ones to include
	After    time.Time          // started after; zero = no bound
	Before   time.Time          // started before; zero = no bound
	Below    execution.UUID     // keyset: ids below this one; zero = from the newest
	Limit    int32
}

// Summary is an execution in a list.
type Summary struct {
	Exec      execution.UUID
	Seq       int64
	StartedAt time.Time
	EndedAt   time.Time
	DefID     int32
	RevID     int32
	Status    execution.Status // zero = open
	Cause     execution.Cause
	Reason    string
	FailedRef string
}

// idSlack is how far an id's time may be from the start it stands for: ids are made before the transaction.
const idSlack = time.Minute

// List gives executions newest first (S18), at most f.Limit: open and closed ones merged by id.
func (s *Store) List(ctx context.Context, f ListFilter) ([]Summary, error) {
	below, from := f.Below, execution.UUID{}
	if below == (execution.UUID{}) {
		for i := range below {
			below[i] = 0xff
		}
	}
	after, before := time.Unix(0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if !f.After.IsZero() {
		after = f.After
		from = execution.NewUUID(after.Add(-idSlack), [10]byte{})
	}
	if !f.Before.IsZero() {
		before = f.Before
		if top := execution.NewUUID(before.Add(idSlack), [10]byte{}); CompareID(execution.ID{Exec: top}, execution.ID{Exec: below}) < 0 {
			below = top
		}
	}
	var open, closed []Summary
	read := func(ctx context.Context, t *Tx, name string, into *[]Summary, args ...any) error {
		rows, err := t.query(ctx, name, "", args...)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error { *into = append(*into, readSummary(r)); return nil })
	}
	err := s.InTx(ctx, API, "list", func(ctx context.Context, t *Tx) error {
		if err := t.AllowBitmaps(ctx); err != nil {
			return err
		}
		args := []any{f.NS, below, from, after, before, f.Limit}
		if f.Running {
			name := "read_list_open"
			openArgs := args
			if f.DefID != 0 {
				name, openArgs = "read_list_open_of", append(args[:6:6], f.DefID)
			}
			if err := read(ctx, t, name, &open, openArgs...); err != nil {
				return err
			}
		}
		if len(f.Statuses) == 0 {
			return nil
		}
		codes := make([]int16, len(f.Statuses))
		for i, st := range f.Statuses {
			codes[i] = int16(st)
		}
		name, closedArgs := "read_list_closed", append(args[:6:6], codes)
		if f.DefID != 0 {
			name, closedArgs = "read_list_closed_of", append(closedArgs, f.DefID)
		}
		return read(ctx, t, name, &closed, closedArgs...)
	})
	return merge(open, closed, int(f.Limit)), err
}

func readSummary(r *row) Summary {
	return Summary{
		Exec: r.uuid(), Seq: r.i64(), StartedAt: r.time(), EndedAt: r.time(), DefID: r.i32(), RevID: r.i32(), Status: execution.Status(r.i16()),
		Cause: execution.Cause(r.text()), Reason: r.text(), FailedRef: r.text(),
	}
}

// merge merges two lists that run down by id. One that closed between the two reads stands in both: the closed one counts.
func merge(open, closed []Summary, limit int) []Summary {
	out := make([]Summary, 0, min(limit, len(open)+len(closed)))
	for len(out) < limit && len(open)+len(closed) > 0 {
		c := 0
		switch {
		case len(open) == 0:
			c = 1
		case len(closed) == 0:
			c = -1
		default:
			c = CompareID(execution.ID{Exec: closed[0].Exec}, execution.ID{Exec: open[0].Exec})
		}
		switch {
		case c == 0:
			open = open[1:]
		case c > 0:
			out, closed = append(out, closed[0]), closed[1:]
		default:
			out, open = append(out, open[0]), open[1:]
		}
	}
	return out
}

// NextMark gives when the next mark is due that is not due yet; zero if there is none.
func (t *Tx) NextMark(ctx context.Context) (at time.Time, err error) {
	rows, err := t.query(ctx, "engine_next_mark", "")
	if err != nil {
		return at, err
	}
	err = each(rows, func(r *row) error { at = r.time(); return nil })
	return at, err
}

// RecentDeaths says whether a runner died in the last minute.
func (t *Tx) RecentDeaths(ctx context.Context) (bool, error) {
	rows, err := t.query(ctx, "engine_recent_deaths", "")
	if err != nil {
		return false, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
}
