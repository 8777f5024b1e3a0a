package store

import (
	"context"
	"fmt"
	"time"

	"nf/runtime/execution"
)

// OpenTask is an open attempt as GET shows it. In a lease LeaseUntil is that of its runner's own row where it has none of itself.
type OpenTask struct {
	OpenAttempt
	Verdict   []byte // of a ready one: last refusal of its definition's gates, JSON
	VerdictAt time.Time
}

// TaskPage says which attempts of an execution are read: those after (TaskNo, Attempt), at most Limit.
type TaskPage struct {
	TaskNo  int32
	Attempt int32
	Limit   int32
	Inputs  bool
	Outputs bool
}

// Tasks are attempts of an execution.
type Tasks struct {
	Ended  []execution.TaskRow // by (task number, attempt), at most the limit
	Open   []OpenTask          // by task number; their attempts come after the ended ones of the same task
	Inputs map[int32][]byte
}

// Tasks reads attempts of an execution (S18): ended ones from its leaf, open ones from the three tables. An attempt that ends between the
// reads may stand in both; the ended one counts. ErrNotFound if the execution's day is gone.
func (s *Store) Tasks(ctx context.Context, id execution.ID, page TaskPage) (out Tasks, err error) {
	err = s.InTx(ctx, API, "read-tasks", func(ctx context.Context, t *Tx) error {
		p := t.pipeline()
		// An open attempt moves towards its end, so the tables are read in that order, the history last.
		for _, q := range []struct {
			name  string
			place execution.Place
		}{{"read_open_timers", execution.InTimer}, {"read_open_ready", execution.InReady}, {"read_open_leases", execution.InLease}} {
			p.queue(q.name, "", []any{id.NS, id.Exec, page.TaskNo - 1, page.Limit}, reader(func(r *row) error {
				task := OpenTask{OpenAttempt: readAttempt(r, q.place)}
				if q.place == execution.InReady {
					task.Verdict, task.VerdictAt = r.bytes(), r.time()
				}
				if task.TaskNo > 0 {
					out.Open = append(out.Open, task)
				}
				return nil
			}))
		}
		p.queue("read_tasks", id.Exec.Day(), []any{id.NS, id.Exec, page.TaskNo, page.Attempt, page.Limit, page.Outputs}, reader(func(r *row) error {
			task, err := readTaskRow(r)
			out.Ended = append(out.Ended, task)
			return err
		}))
		if err := p.send(ctx); err != nil || !page.Inputs {
			return err
		}
		return t.taskInputs(ctx, id, page, &out)
	})
	if Code(err) == "42P01" {
		err = fmt.Errorf("execution %s: %w", id.Exec, ErrNotFound)
	}
	return out, err
}

func (t *Tx) taskInputs(ctx context.Context, id execution.ID, page TaskPage, out *Tasks) error {
	last := page.TaskNo
	for _, task := range out.Ended {
		last = max(last, task.TaskNo)
	}
	for _, task := range out.Open {
		last = max(last, task.TaskNo)
	}
	out.Inputs = map[int32][]byte{}
	rows, err := t.query(ctx, "read_inputs", id.Exec.Day(), id.NS, id.Exec, max(page.TaskNo, 1), last)
	if err != nil {
		return err
	}
	return each(rows, func(r *row) (err error) {
		no := r.i32()
		out.Inputs[no], err = unpack(r.i16(), r.bytes())
		return err
	})
}

func readTaskRow(r *row) (execution.TaskRow, error) {
	task := execution.TaskRow{
		TaskNo: r.i32(), Attempt: r.i32(), Seq: r.i64(), ScheduledAt: r.time(), VisibleAt: r.time(), LeasedAt: r.time(), EndedAt: r.time(),
		ScopeNo: r.i32(), Slot: r.i32(), DefID: r.i32(), DefRev: r.i32(), QueueID: r.i32(), Deliveries: r.i32(), Kind: execution.Kind(r.i16()),
		Status: execution.Status(r.i16()), Rerun: r.i32(), Absorbed: r.boolean(), Exhausted: r.boolean(), Iteration: r.text(), Worker: r.text(),
		Cause: execution.Cause(r.text()), Reason: r.text(), Control: r.text(), NextDueAt: r.time(), DelayPolicy: r.i64(), DelayMin: r.i64(),
		DelaySource: r.text(), Width: r.i32(),
	}
	var err error
	task.Output, err = unpack(r.i16(), r.bytes())
	return task, err
}

// LogLine is one line of a task's log. Level: 0 debug, 1 info, 2 warn, 3 error.
type LogLine struct {
	ID      int64
	At      time.Time
	Level   int16
	Worker  string
	Message string // at most 16 KiB of valid UTF-8
}

// Logs reads lines of an attempt after a line, oldest first. ErrNotFound if the execution's day is gone.
func (s *Store) Logs(ctx context.Context, id execution.ID, taskNo, attempt int32, after int64, limit int32) (out []LogLine, err error) {
	err = s.InTx(ctx, API, "read-logs", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "read_logs", id.Exec.Day(), id.NS, id.Exec, taskNo, attempt, after, limit)
		if err != nil {
			return err
		}
		return each(rows, func(r *row) error {
			out = append(out, LogLine{ID: r.i64(), At: r.time(), Level: r.i16(), Worker: r.text(), Message: r.text()})
			return nil
		})
	})
	if Code(err) == "42P01" {
		err = fmt.Errorf("execution %s: %w", id.Exec, ErrNotFound)
	}
	return out, err
}

// AddLogs appends lines to the log of an attempt whose lease is in force; of more than 1,000 the oldest go. ErrLeaseLost if the fence is gone. A
// zero time of a line is the database's now.
func (s *Store) AddLogs(ctx context.Context, key AttemptKey, worker string, lines []LogLine) error {
	return s.InTx(ctx, API, "write-logs", func(ctx context.Context, t *Tx) error {
		held := false
		rows, err := t.query(ctx, "read_lease_held", "", key.NS, key.Exec, key.TaskNo, key.Attempt, key.Fence)
		if err != nil {
			return err
		}
		if err := each(rows, func(r *row) error { held = r.i64() == key.Fence; return nil }); err != nil {
			return err
		}
		if !held {
			return ErrLeaseLost
		}
		now, err := t.Now(ctx)
		if err != nil {
			return err
		}
		k := newTable("", oTime, oI16, oText)
		for _, l := range lines {
			if l.At.IsZero() {
				l.At = now
			}
			k.cols[0].time(l.At)
			k.cols[1].i16(l.Level)
			k.cols[2].text(execution.CutReason(l.Message, 16<<10))
		}
		p := t.pipeline()
		p.queue("read_logs_in", "", append([]any{key.NS, key.Exec, key.TaskNo, key.Attempt, nullable(worker)}, k.args...), nil)
		p.queue("read_logs_cut", key.Exec.Day(), []any{key.NS, key.Exec, key.TaskNo, key.Attempt}, nil)
		return p.send(ctx)
	})
}
