package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
)

// BudgetKey names the retry budget of a definition.
type BudgetKey struct {
	NS    int32
	DefID int32
}

// Wanted lists what evaluations lack, for all executions of a flush.
type Wanted struct {
	Scopes  []TaskKey
	Tasks   []TaskKey
	Inputs  []TaskKey // task 0: the execution's own input
	Vars    []execution.ID
	Budgets []BudgetKey
	Now     time.Time // for the window of Budgets
}

// Empty says that nothing is wanted.
func (w Wanted) Empty() bool {
	return len(w.Scopes) == 0 && len(w.Tasks) == 0 && len(w.Inputs) == 0 && len(w.Vars) == 0 && len(w.Budgets) == 0
}

// Loaded is what was there. What is missing in a map does not exist.
type Loaded struct {
	Scopes  map[TaskKey]execution.Scope
	Tasks   map[TaskKey]execution.TaskValue
	Inputs  map[TaskKey][]byte
	Vars    map[execution.ID]map[string][]byte
	Budgets map[BudgetKey]execution.Budget
}

// budgetWindow and budgetBucket are those of X11.
const (
	budgetWindow = 300
	budgetBucket = 10
)

// Load reads what evaluations lack, in one round trip.
func (t *Tx) Load(ctx context.Context, w Wanted) (Loaded, error) {
	out := Loaded{
		Scopes: map[TaskKey]execution.Scope{}, Tasks: map[TaskKey]execution.TaskValue{}, Inputs: map[TaskKey][]byte{},
		Vars: map[execution.ID]map[string][]byte{}, Budgets: map[BudgetKey]execution.Budget{},
	}
	p := t.pipeline()
	if len(w.Scopes) > 0 {
		k := taskKeys("engine_scopes", w.Scopes)
		p.queue(k.name, "", k.args, reader(func(r *row) error {
			id, s := readScope(r)
			out.Scopes[TaskKey{id, s.ScopeNo}] = s
			return nil
		}))
	}
	for _, d := range byDay(w.Tasks) {
		k := taskKeys("engine_tasks", d.keys)
		p.queue(k.name, d.day, k.args, reader(func(r *row) error { return readTaskValue(r, out.Tasks) }))
	}
	for _, d := range byDay(w.Inputs) {
		k := taskKeys("engine_inputs", d.keys)
		p.queue(k.name, d.day, k.args, reader(func(r *row) error { return readInput(r, out.Inputs) }))
	}
	if len(w.Vars) > 0 {
		k := newTable("engine_vars", oI32, oUUID)
		for _, id := range w.Vars {
			k.id(id)
			out.Vars[id] = map[string][]byte{}
		}
		p.queue(k.name, "", k.args, reader(func(r *row) error {
			id := execution.ID{NS: r.i32(), Exec: r.uuid()}
			out.Vars[id][r.text()] = r.bytes()
			return nil
		}))
	}
	if len(w.Budgets) > 0 {
		queueBudgets(p, w, out.Budgets)
	}
	return out, p.send(ctx)
}

func queueBudgets(p *pipeline, w Wanted, into map[BudgetKey]execution.Budget) {
	k := newTable("engine_budgets", oI32, oI32)
	for _, b := range w.Budgets {
		k.cols[0].i32(b.NS)
		k.cols[1].i32(b.DefID)
	}
	low := floorDiv(w.Now.Unix()-budgetWindow, budgetBucket)
	p.queue(k.name, "", append(slices.Clone(k.args), low), func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key BudgetKey
			var limit *float32
			var b execution.Budget
			if err := rows.Scan(&key.NS, &key.DefID, &limit, &b.Total, &b.Retries); err != nil {
				return err
			}
			b.Limit = 1
			if limit != nil { // the number as written, not the nearest 32-bit one: 7 of 10 is not above 0.7
				b.Limit, _ = strconv.ParseFloat(strconv.FormatFloat(float64(*limit), 'g', -1, 32), 64)
			}
			into[key] = b
		}
		return rows.Err()
	})
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func taskKeys(name string, keys []TaskKey) *table {
	k := newTable(name, oI32, oUUID, oI32)
	for _, key := range keys {
		k.id(key.ID)
		k.cols[2].i32(key.TaskNo)
	}
	return k
}

func readScope(r *row) (execution.ID, execution.Scope) {
	id := execution.ID{NS: r.i32(), Exec: r.uuid()}
	return id, execution.Scope{
		ScopeNo: r.i32(), ParentNo: r.i32(), Slot: r.i32(), Kind: r.i16(), BaseNo: r.i32(), Width: r.i32(), Cursor: r.i32(), Open: r.i32(),
		Pending: r.i32(), Fired: r.boolean(),
	}
}

func readTaskValue(r *row, into map[TaskKey]execution.TaskValue) error {
	key := TaskKey{execution.ID{NS: r.i32(), Exec: r.uuid()}, r.i32()}
	v := execution.TaskValue{Attempt: r.i32(), EndedAt: r.time(), Status: execution.Status(r.i16()), Absorbed: r.boolean(), Ended: r.boolean()}
	var err error
	v.Output, err = unpack(r.i16(), r.bytes())
	into[key] = v
	return err
}

func readInput(r *row, into map[TaskKey][]byte) error {
	key := TaskKey{execution.ID{NS: r.i32(), Exec: r.uuid()}, r.i32()}
	body, err := unpack(r.i16(), r.bytes())
	into[key] = body
	return err
}

// Inputs reads the inputs of task runs by key, after the commit of a claim (S1): they never change. A task without one had {}.
func (t *Tx) Inputs(ctx context.Context, keys []TaskKey) (map[TaskKey][]byte, error) {
	loaded, err := t.Load(ctx, Wanted{Inputs: keys})
	return loaded.Inputs, err
}

// dayKeys are keys whose executions started on one day.
type dayKeys struct {
	day  string
	keys []TaskKey
}

// byDay groups keys by the leaf that holds them. Nearly always there is one group.
func byDay(keys []TaskKey) []dayKeys {
	var out []dayKeys
	for _, key := range keys {
		day := key.Exec.Day()
		i := slices.IndexFunc(out, func(d dayKeys) bool { return d.day == day })
		if i < 0 {
			out = append(out, dayKeys{day: day})
			i = len(out) - 1
		}
		out[i].keys = append(out[i].keys, key)
	}
	return out
}

// Scopes gives all open scopes of executions, by number.
func (t *Tx) Scopes(ctx context.Context, execs []execution.ID) (map[execution.ID][]execution.Scope, error) {
	out := map[execution.ID][]execution.Scope{}
	k := newTable("engine_all_scopes", oI32, oUUID)
	for _, id := range execs {
		k.id(id)
	}
	p := t.pipeline()
	p.queue(k.name, "", k.args, reader(func(r *row) error {
		id, s := readScope(r)
		out[id] = append(out[id], s)
		return nil
	}))
	return out, p.send(ctx)
}

// DueMark names an execution that has a due mark, oldest first.
type DueMark struct {
	execution.ID
	FactID int64
	DueAt  time.Time
	Since  time.Time
	Tries  int32
}

// DueMarks finds the oldest due marks after low, at most limit (S3 step 1). The zero time reads from the beginning.
func (t *Tx) DueMarks(ctx context.Context, low time.Time, limit int32) ([]DueMark, error) {
	if low.IsZero() {
		low = time.Unix(0, 0)
	}
	var out []DueMark
	rows, err := t.query(ctx, "engine_due_marks", "", low, limit)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r *row) error {
		out = append(out, DueMark{
			ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, FactID: r.i64(), DueAt: r.time(), Since: r.time(), Tries: r.i32(),
		})
		return nil
	})
	return out, err
}

// Marks reads the due marks of locked executions, at most 500 each, oldest first (S3 step 4).
func (t *Tx) Marks(ctx context.Context, execs []execution.ID, now time.Time) (map[execution.ID][]Mark, error) {
	out := map[execution.ID][]Mark{}
	k := newTable("engine_marks", oI32, oUUID)
	for _, id := range execs {
		k.id(id)
	}
	p := t.pipeline()
	p.queue(k.name, "", append(slices.Clone(k.args), now), reader(func(r *row) error {
		m := Mark{
			ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, FactID: r.i64(), What: MarkWhat(r.i16()), TaskNo: r.i32(), Attempt: r.i32(),
			Since: r.time(), Tries: r.i32(), Detail: r.text(),
		}
		out[m.ID] = append(out[m.ID], m)
		return nil
	}))
	return out, p.send(ctx)
}

// Recorded reads attempts whose result was recorded and not decided.
func (t *Tx) Recorded(ctx context.Context, keys []AttemptKey) ([]Recorded, error) {
	var out []Recorded
	days := map[string]*table{}
	p := t.pipeline()
	for _, a := range keys {
		day := a.Exec.Day()
		if days[day] == nil {
			days[day] = newTable("engine_recorded", oI32, oUUID, oI32, oI32)
		}
		days[day].id(a.ID)
		days[day].cols[2].i32(a.TaskNo)
		days[day].cols[3].i32(a.Attempt)
	}
	for day, k := range days {
		p.queue(k.name, day, k.args, reader(func(r *row) error {
			rec := Recorded{ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, Row: execution.TaskRow{
				TaskNo: r.i32(), Attempt: r.i32(), QueueID: r.i32(), Kind: execution.Kind(r.i16()), ScopeNo: r.i32(), Slot: r.i32(), DefID: r.i32(),
				DefRev: r.i32(), Rerun: r.i32(), Deliveries: r.i32(), ScheduledAt: r.time(), VisibleAt: r.time(), Iteration: r.text(),
				Fence: r.i64(), LeasedAt: r.time(), EndedAt: r.time(), Worker: r.text(), Status: execution.Status(r.i16()),
				Cause: execution.Cause(r.text()), Reason: r.text(), Control: r.text(),
			}}
			var err error
			rec.Row.Output, err = unpack(r.i16(), r.bytes())
			out = append(out, rec)
			return err
		}))
	}
	return out, p.send(ctx)
}

// Answer is what nf_task says of an attempt.
type Answer struct {
	Fence  int64 // of the report that ended it; 0 = ended otherwise
	Status execution.Status
	Cause  execution.Cause
}

// Answers looks up what became of attempts (N7, S0). What has no row is not in the map. A day that is gone is an error with code 42P01.
func (t *Tx) Answers(ctx context.Context, day string, keys []AttemptKey) (map[AttemptKey]Answer, error) {
	out := map[AttemptKey]Answer{}
	k := newTable("engine_answers", oI32, oUUID, oI32, oI32)
	for _, a := range keys {
		k.id(a.ID)
		k.cols[2].i32(a.TaskNo)
		k.cols[3].i32(a.Attempt)
	}
	p := t.pipeline()
	p.queue(k.name, day, k.args, reader(func(r *row) error {
		key := AttemptKey{ID: execution.ID{NS: r.i32(), Exec: r.uuid()}, TaskNo: r.i32(), Attempt: r.i32()}
		out[key] = Answer{Fence: r.i64(), Status: execution.Status(r.i16()), Cause: execution.Cause(r.text())}
		return nil
	}))
	return out, p.send(ctx)
}

// ClosedAs is how an execution ended.
type ClosedAs struct {
	Status execution.Status
	Seq    int64
}

// ClosedAs looks up ended executions of one day. A day that is gone is an error with code 42P01.
func (t *Tx) ClosedAs(ctx context.Context, day string, execs []execution.ID) (map[execution.ID]ClosedAs, error) {
	out := map[execution.ID]ClosedAs{}
	k := newTable("engine_closed", oI32, oUUID)
	for _, id := range execs {
		k.id(id)
	}
	p := t.pipeline()
	p.queue(k.name, day, k.args, reader(func(r *row) error {
		out[execution.ID{NS: r.i32(), Exec: r.uuid()}] = ClosedAs{Status: execution.Status(r.i16()), Seq: r.i64()}
		return nil
	}))
	return out, p.send(ctx)
}
