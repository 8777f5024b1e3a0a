package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"nf/runtime/execution"
	"nf/schema"
)

// maxGates is how many gates one apply may change: a transaction holds some 10,000 locks at the server's defaults (S14).
const maxGates = 5000

// ErrTooManyGates says that an apply changes the settings of more gates than one transaction can lock.
var ErrTooManyGates = fmt.Errorf("more than %d caps, budgets and semaphores change at once: apply them in smaller steps", maxGates)

// ChangeAction is what an apply does to an object (nf_change.action).
type ChangeAction string

// The actions of an apply.
const (
	ActionAdd      ChangeAction = "add"
	ActionChange   ChangeAction = "change"
	ActionRetire   ChangeAction = "retire"
	ActionUnretire ChangeAction = "unretire" // it reappeared, changed or not
)

// Declared is one object as the files want it.
type Declared struct {
	Object schema.Object
	Digest [32]byte
	Spec   []byte // canonical JSON
	File   string // never empty
	Line   int32  // 1-based
}

// Change is one thing that an apply does. Base is nil for an add, Want is nil for a retire.
type Change struct {
	Action ChangeAction
	Base   *RegisteredObject
	Want   *Declared
}

// ApplyRequest says what is applied, by whom. Zero LockWait waits 30 s.
type ApplyRequest struct {
	Project        string
	BaseGeneration int64 // the plan's
	Digest         [32]byte
	Commit, Branch string
	Order          *Commit // recorded as the one in force (P11); nil = no order is kept
	Actor          string
	Build          int64
	Reason         string
	LockWait       time.Duration
	DryRun         bool             // the same transaction, rolled back
	MoveVersions   bool             // private database of nf dev: an explicit version moves to the newest content (N3)
	Wanted         []schema.Address // every object of the set
}

// Applied says what an apply did.
type Applied struct {
	Generation int64 // in force now; of a dry run: that it would be
	Unchanged  bool  // nothing had to change, or the same apply had been committed before
	Added      int
	Changed    int // un-retired ones included
	Retired    int
	Revisions  map[schema.Address]int32 // of what was added, changed or un-retired
}

// BusyError says that another process holds the registry lock.
type BusyError struct {
	Holder string // application name, user and address
	Since  time.Time
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return "another change of definitions is under way"
	}
	return fmt.Sprintf("another change of definitions is under way: %s since %s", e.Holder, e.Since.UTC().Format(time.RFC3339))
}

// Is makes a BusyError an ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

var errDryRun = errors.New("dry run")

// Apply is S14: one transaction. Under the registry lock, judge is given what is registered and says what is to be done, or why not; its error is returned as
// it is, after a roll-back. A generation other than the plan's is ErrStale, unless it already holds the wanted set: then this apply, or one like
// it, has been committed before and nothing is done. A failed apply is written to the audit log in a transaction of its own.
func (s *Store) Apply(ctx context.Context, req ApplyRequest, judge func(Registered) ([]Change, error)) (Applied, error) {
	if req.LockWait <= 0 {
		req.LockWait = 30 * time.Second
	}
	install, err := s.InstallID(ctx)
	if err != nil {
		return Applied{}, err
	}
	var out Applied
	err = s.inOwnTx(ctx, "apply", req.LockWait, func(ctx context.Context, t *Tx) error {
		a := &applying{Tx: t, req: req, install: install}
		var err error
		if out, err = a.run(ctx, judge); err != nil {
			return err
		}
		if req.DryRun {
			return errDryRun
		}
		return nil
	})
	switch {
	case errors.Is(err, errDryRun):
		return out, nil
	case err != nil:
		if errors.Is(err, ErrBusy) {
			err = s.busy(ctx, RegistryGate(install), err)
		}
		s.auditFailedApply(ctx, req, err)
		return Applied{}, err
	}
	if !out.Unchanged {
		s.notifyRegistry(ctx)
	}
	return out, nil
}

// busy finds out who holds a lock that was not had. Best effort: the message says less without it.
func (s *Store) busy(ctx context.Context, key int64, cause error) error {
	busy := &BusyError{}
	_ = s.InTx(ctx, API, "lock-holder", func(ctx context.Context, t *Tx) error {
		rows, err := t.query(ctx, "lock_holder", "", key)
		if err != nil {
			return err
		}
		var app, user, addr string
		var since time.Time
		_, err = pgx.ForEachRow(rows, []any{&app, &user, &addr, &since}, func() error {
			busy.Holder, busy.Since = strings.TrimSpace(fmt.Sprintf("%s %s@%s", app, user, addr)), since
			return nil
		})
		return err
	})
	return fmt.Errorf("%w: %w", busy, cause)
}

// auditFailedApply writes the attempt down. Best effort: the caller has the error that matters.
func (s *Store) auditFailedApply(ctx context.Context, req ApplyRequest, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = s.InTx(ctx, API, "apply-failed", func(ctx context.Context, t *Tx) error {
		now, err := t.Now(ctx)
		if err != nil {
			return err
		}
		reason := cause.Error()
		if len(reason) > execution.MaxReason {
			reason = strings.ToValidUTF8(reason[:execution.MaxReason], "")
		}
		_, err = t.exec(ctx, "audit_insert", "", []int32{0}, []string{"apply-failed"}, []string{"Project/" + req.Project}, [][]byte{nil}, [][]byte{nil},
			now, req.Actor, req.Project, req.BaseGeneration, orNull(req.Commit), reason)
		return err
	})
}

// applying is one apply under way.
type applying struct {
	*Tx
	req     ApplyRequest
	install execution.UUID
	project Project
	changes []Change
	gen     int64
	now     time.Time
	ids     map[schema.Address][2]int32 // namespace number and object id of everything that changes
	revs    map[schema.Address]int32    // revision in force after the apply
	revIDs  map[schema.Address]int32    // rev_id of revisions made by this apply
}

func (a *applying) run(ctx context.Context, judge func(Registered) ([]Change, error)) (Applied, error) {
	// The registry lock stills every declaration: what is read after it is what the row locks below will find.
	if err := a.LockGates(ctx, []int64{RegistryGate(a.install)}, a.req.LockWait); err != nil {
		return Applied{}, err
	}
	registered, err := a.registered(ctx, a.req.Project, a.orderKey(), a.req.Wanted)
	if err != nil {
		return Applied{}, err
	}
	if done, err := a.sameGeneration(registered.Project); done || err != nil {
		return Applied{Generation: registered.Project.Generation, Unchanged: true}, err
	}
	if a.changes, err = judge(registered); err != nil {
		return Applied{}, err
	}
	sortChanges(a.changes)
	if err := a.lock(ctx); err != nil {
		return Applied{}, err
	}
	if len(a.changes) == 0 && a.project.Generation > 0 {
		_, err := a.exec(ctx, "project_commit", "", a.req.Project, a.req.Digest[:], orNull(a.req.Commit), orNull(a.req.Branch))
		if err == nil {
			err = a.recordCommit(ctx, a.project.Generation)
		}
		return Applied{Generation: a.project.Generation, Unchanged: true}, err
	}
	if err := a.write(ctx); err != nil {
		return Applied{}, err
	}
	return a.summary(), nil
}

func (a *applying) orderKey() string {
	if a.req.Order == nil {
		return ""
	}
	return a.req.Order.ID
}

// recordCommit makes the commit the one in force; the one before it is superseded from now on.
func (a *applying) recordCommit(ctx context.Context, generation int64) error {
	c := a.req.Order
	if c == nil {
		return nil
	}
	if _, err := a.exec(ctx, "commit_supersede", "", a.req.Project, c.ID, generation); err != nil {
		return err
	}
	var at *time.Time
	if !c.CommittedAt.IsZero() {
		at = &c.CommittedAt
	}
	_, err := a.exec(ctx, "commit_record", "", a.req.Project, c.ID, generation, at, c.Parents, a.req.Digest[:])
	return err
}

// sameGeneration compares the generation with the plan's.
func (a *applying) sameGeneration(p Project) (done bool, err error) {
	if p.Generation == a.req.BaseGeneration {
		return false, nil
	}
	if p.Generation > a.req.BaseGeneration && bytes.Equal(p.Digest, a.req.Digest[:]) {
		return true, nil
	}
	return false, fmt.Errorf("%w: the plan was made at generation %d, now %d is in force", ErrStale, a.req.BaseGeneration, p.Generation)
}

// lock takes the gates whose settings change, the project and the objects, in that order, and judges again what the rows say.
func (a *applying) lock(ctx context.Context) error {
	gates, err := a.changedGates(ctx)
	if err != nil {
		return err
	}
	if err := a.LockGates(ctx, gates, a.req.LockWait); err != nil {
		return err
	}
	if _, err := a.exec(ctx, "project_insert", "", a.req.Project); err != nil {
		return err
	}
	if a.project, err = a.Tx.project(ctx, a.req.Project, "project_lock"); err != nil {
		return err
	}
	if a.project.Generation != a.req.BaseGeneration {
		return fmt.Errorf("%w: generation %d is in force", ErrStale, a.project.Generation)
	}
	if err := a.lockObjects(ctx); err != nil {
		return err
	}
	a.gen = a.project.Generation + 1
	a.now, err = a.Now(ctx)
	return err
}

// lockObjects locks what changes and holds it to what was judged.
func (a *applying) lockObjects(ctx context.Context) error {
	a.ids = map[schema.Address][2]int32{}
	byID := map[[2]int32]*RegisteredObject{}
	for _, c := range a.changes {
		if c.Base != nil {
			key := [2]int32{c.Base.NS, c.Base.ObjectID}
			byID[key] = c.Base
			a.ids[c.Base.Address] = key
		}
	}
	keys := sortedKeys(byID)
	ns, ids := columns(keys)
	rows, err := a.query(ctx, "objects_lock", "", ns, ids)
	if err != nil {
		return err
	}
	var key [2]int32
	var revision int32
	var project *string
	var retired *time.Time
	found := 0
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &revision, &project, &retired}, func() error {
		o := byID[key]
		found++
		if o.Revision != revision || o.Project != orZero(project) || o.RetiredAt.IsZero() != (retired == nil) {
			return fmt.Errorf("%w: %s has changed meanwhile", ErrStale, o.Address)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	if found != len(keys) {
		return fmt.Errorf("%w: an object is gone", ErrStale)
	}
	return nil
}

// summary counts what was done.
func (a *applying) summary() Applied {
	out := Applied{Generation: a.gen, Revisions: a.revs}
	for _, c := range a.changes {
		switch c.Action {
		case ActionAdd:
			out.Added++
		case ActionChange, ActionUnretire:
			out.Changed++
		case ActionRetire:
			out.Retired++
		}
	}
	return out
}

func (c Change) address() schema.Address {
	if c.Want != nil {
		return c.Want.Object.Address()
	}
	return c.Base.Address
}

// sortChanges brings changes into a fixed order, so that two applies insert names in one order.
func sortChanges(changes []Change) {
	slices.SortFunc(changes, func(x, y Change) int {
		a, b := x.address(), y.address()
		return strings.Compare(namespaceOf(a)+"\x00"+string(a.Kind)+"\x00"+a.Name, namespaceOf(b)+"\x00"+string(b.Kind)+"\x00"+b.Name)
	})
}

func sortedKeys[V any](m map[[2]int32]V) [][2]int32 {
	keys := make([][2]int32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b [2]int32) int {
	if a[0] != b[0] {
		return int(a[0]) - int(b[0])
	}
	return int(a[1]) - int(b[1])
}

func columns(keys [][2]int32) (ns, ids []int32) {
	ns, ids = make([]int32, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		ns[i], ids[i] = k[0], k[1]
	}
	return ns, ids
}
