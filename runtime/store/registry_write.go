package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"nf/schema"
)

// changedGates gives the gates of existing definitions and semaphores whose settings this apply changes. What is added needs none: nobody
// can see it before the commit.
func (a *applying) changedGates(ctx context.Context) ([]int64, error) {
	want := map[[2]int32]schema.Object{}
	for _, c := range a.changes {
		if c.Base == nil || c.Want == nil {
			continue
		}
		switch c.Want.Object.(type) {
		case *schema.TaskDefinition, *schema.Semaphore:
			want[[2]int32{c.Base.NS, c.Base.ObjectID}] = c.Want.Object
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	ns, ids := columns(sortedKeys(want))
	rows, err := a.query(ctx, "registry_gates", "", ns, ids)
	if err != nil {
		return nil, err
	}
	var key [2]int32
	var limit, permits *int64
	var budget *float32
	var sems []string
	var gates []int64
	_, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &limit, &budget, &permits, &sems}, func() error {
		switch o := want[key].(type) {
		case *schema.TaskDefinition:
			if orZero(limit) != o.ConcurrentExecLimit || budget == nil || *budget != float32(o.RetryBudget) || !slices.Equal(sems, semaphoreNames(o)) {
				gates = append(gates, ObjectGate(a.install, GateDefinition, key[0], key[1]))
			}
		case *schema.Semaphore:
			if orZero(permits) != o.Permits {
				gates = append(gates, ObjectGate(a.install, GateSemaphore, key[0], key[1]))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("gates: %w", err)
	}
	if len(gates) > maxGates {
		return nil, ErrTooManyGates
	}
	return gates, nil
}

func semaphoreNames(def *schema.TaskDefinition) []string {
	names := make([]string, 0, len(def.Semaphores))
	for _, ref := range def.Semaphores {
		names = append(names, ref.String())
	}
	slices.Sort(names)
	return names
}

// write does what was judged, statement by statement; the generation check is the last.
func (a *applying) write(ctx context.Context) error {
	a.revs, a.revIDs = map[schema.Address]int32{}, map[schema.Address]int32{}
	steps := []func(context.Context) error{
		a.makeNamespaces, a.addObjects, a.makeRevisions, a.pointObjects, a.retireObjects, a.writePolicies, a.writeSemaphores, a.writeDefinitions,
		a.writeHistory,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	rows, err := a.query(ctx, "project_apply", "", a.req.Project, a.project.Generation, a.req.Digest[:], orNull(a.req.Commit), orNull(a.req.Branch),
		a.now, a.req.Actor)
	if err != nil {
		return err
	}
	gen, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("project: %w", err)
	}
	if len(gen) != 1 || gen[0] != a.gen {
		return fmt.Errorf("%w: the generation has moved", ErrStale)
	}
	return a.recordCommit(ctx, a.gen)
}

// makeNamespaces makes the namespaces that come with their first object, or with their own manifest.
func (a *applying) makeNamespaces(ctx context.Context) error {
	var names []string
	for _, c := range a.changes {
		if c.Action != ActionAdd {
			continue
		}
		address := c.address()
		names = append(names, namespaceOf(address))
		if address.Kind == schema.KindNamespace {
			names = append(names, address.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if _, err := a.exec(ctx, "namespaces_insert", "", names, a.now); err != nil {
		return err
	}
	rows, err := a.query(ctx, "namespaces_named", "", names)
	if err != nil {
		return err
	}
	numbers := map[string]int32{}
	var ns int32
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&ns, &name}, func() error {
		numbers[name] = ns
		return nil
	}); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	for _, c := range a.changes {
		if c.Action == ActionAdd {
			a.ids[c.address()] = [2]int32{numbers[namespaceOf(c.address())], 0}
		}
	}
	return nil
}

// objectColumns are the columns of objects that are added or pointed at a revision.
type objectColumns struct {
	ns, ids, revisions, lines           []int32
	kinds, names, descriptions, sources []string
	labels                              []*string
}

func (o *objectColumns) add(key [2]int32, revision int32, want *Declared) error {
	meta := want.Object.Meta()
	var labels *string
	if len(meta.Labels) > 0 {
		text, err := json.Marshal(meta.Labels)
		if err != nil {
			return fmt.Errorf("labels: %w", err)
		}
		labels = orNull(string(text))
	}
	o.ns, o.ids, o.revisions = append(o.ns, key[0]), append(o.ids, key[1]), append(o.revisions, revision)
	o.kinds, o.names = append(o.kinds, string(want.Object.Address().Kind)), append(o.names, meta.Name)
	o.labels, o.descriptions = append(o.labels, labels), append(o.descriptions, meta.Description)
	o.sources, o.lines = append(o.sources, want.File), append(o.lines, max(want.Line, 1))
	return nil
}

func (a *applying) addObjects(ctx context.Context) error {
	var o objectColumns
	byKey := map[string]schema.Address{}
	for _, c := range a.changes {
		if c.Action != ActionAdd {
			continue
		}
		address := c.address()
		byKey[fmt.Sprintf("%d %s %s", a.ids[address][0], address.Kind, address.Name)] = address
		if err := o.add(a.ids[address], 1, c.Want); err != nil {
			return err
		}
	}
	if len(o.ns) == 0 {
		return nil
	}
	rows, err := a.query(ctx, "objects_insert", "", o.ns, o.kinds, o.names, o.labels, o.descriptions, o.sources,
		a.req.Project, orNull(a.req.Commit), a.gen, a.now, o.lines)
	if err != nil {
		return err
	}
	var ns, id int32
	var kind, name string
	if _, err = pgx.ForEachRow(rows, []any{&ns, &id, &kind, &name}, func() error {
		a.ids[byKey[fmt.Sprintf("%d %s %s", ns, kind, name)]] = [2]int32{ns, id}
		return nil
	}); err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	return nil
}

// makeRevisions gives each wanted content its number: the one it had before, or the next (N3).
func (a *applying) makeRevisions(ctx context.Context) error {
	known, err := a.knownRevisions(ctx)
	if err != nil {
		return err
	}
	var ns, ids, numbers []int32
	var digests, specs [][]byte
	var versions []int64
	owner := map[[2]int32]schema.Address{}
	var moved []movedVersion
	for _, c := range a.changes {
		if c.Want == nil {
			continue
		}
		address := c.address()
		key, version := a.ids[address], versionOf(c.Want.Object)
		k := known[key]
		if k.revision != 0 {
			a.revs[address] = k.revision
		} else {
			a.revs[address] = k.highest + 1
			owner[key] = address
			ns, ids, numbers = append(ns, key[0]), append(ids, key[1]), append(numbers, k.highest+1)
			digests, specs, versions = append(digests, c.Want.Digest[:]), append(specs, c.Want.Spec), append(versions, version)
		}
		if version != 0 && a.req.MoveVersions && c.Base != nil {
			moved = append(moved, movedVersion{key, a.revs[address], version, k.revision != 0})
		}
	}
	if err := a.moveVersions(ctx, moved); err != nil {
		return err
	}
	if len(ns) == 0 {
		return nil
	}
	rows, err := a.query(ctx, "revisions_insert", "", ns, ids, numbers, digests, versions, specs, a.req.Project, a.gen, orNull(a.req.Commit), a.req.Actor, a.now)
	if err != nil {
		return err
	}
	var key [2]int32
	var revID int32
	if _, err = pgx.ForEachRow(rows, []any{&key[0], &key[1], &revID}, func() error {
		a.revIDs[owner[key]] = revID
		return nil
	}); err != nil {
		return fmt.Errorf("revisions: %w", err)
	}
	return nil
}

type knownRevision struct{ highest, revision int32 }

// knownRevisions looks up, for every object that exists, its highest revision and the one that has the wanted content.
func (a *applying) knownRevisions(ctx context.Context) (map[[2]int32]knownRevision, error) {
	var ns, ids []int32
	var digests [][]byte
	for _, c := range a.changes {
		if c.Base != nil && c.Want != nil {
			ns, ids, digests = append(ns, c.Base.NS), append(ids, c.Base.ObjectID), append(digests, c.Want.Digest[:])
		}
	}
	known := map[[2]int32]knownRevision{}
	if len(ns) == 0 {
		return known, nil
	}
	rows, err := a.query(ctx, "revisions_known", "", ns, ids, digests)
	if err != nil {
		return nil, err
	}
	var key [2]int32
	var k knownRevision
	if _, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &k.highest, &k.revision}, func() error {
		known[key] = k
		return nil
	}); err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	return known, nil
}

type movedVersion struct {
	key      [2]int32
	revision int32
	version  int64
	exists   bool // the revision is there already
}

// moveVersions takes explicit versions from the contents that had them: only in the private database of nf dev.
func (a *applying) moveVersions(ctx context.Context, moved []movedVersion) error {
	if len(moved) == 0 {
		return nil
	}
	var ns, ids, setNS, setIDs, setRevs []int32
	var versions, setVersions []int64
	for _, m := range moved {
		ns, ids, versions = append(ns, m.key[0]), append(ids, m.key[1]), append(versions, m.version)
		if m.exists {
			setNS, setIDs, setRevs = append(setNS, m.key[0]), append(setIDs, m.key[1]), append(setRevs, m.revision)
			setVersions = append(setVersions, m.version)
		}
	}
	if _, err := a.exec(ctx, "versions_clear", "", ns, ids, versions); err != nil {
		return err
	}
	if len(setNS) == 0 {
		return nil
	}
	_, err := a.exec(ctx, "versions_set", "", setNS, setIDs, setRevs, setVersions)
	return err
}

func versionOf(o schema.Object) int64 {
	if w, ok := o.(*schema.Workflow); ok {
		return w.Version
	}
	return 0
}

// pointObjects points what changed or reappeared at its revision.
func (a *applying) pointObjects(ctx context.Context) error {
	var o objectColumns
	for _, c := range a.changes {
		if c.Action != ActionChange && c.Action != ActionUnretire {
			continue
		}
		if err := o.add(a.ids[c.address()], a.revs[c.address()], c.Want); err != nil {
			return err
		}
	}
	if len(o.ns) == 0 {
		return nil
	}
	_, err := a.exec(ctx, "objects_update", "", o.ns, o.ids, o.revisions, o.labels, o.descriptions, o.sources, o.lines,
		a.req.Project, orNull(a.req.Commit), a.gen, a.now)
	return err
}

func (a *applying) retireObjects(ctx context.Context) error {
	var ns, ids []int32
	for _, c := range a.changes {
		if c.Action == ActionRetire {
			ns, ids = append(ns, c.Base.NS), append(ids, c.Base.ObjectID)
		}
	}
	if len(ns) == 0 {
		return nil
	}
	_, err := a.exec(ctx, "objects_retire", "", ns, ids, a.now, a.gen)
	return err
}

// writePolicies writes what SQL needs of the new revisions of definitions.
func (a *applying) writePolicies(ctx context.Context) error {
	var ns, revs []int32
	var lease, beat, closing []int64
	for _, c := range a.changes {
		def, revID := definition(c), a.revIDs[c.address()]
		if def == nil || revID == 0 {
			continue
		}
		ns, revs = append(ns, a.ids[c.address()][0]), append(revs, revID)
		lease, beat, closing = append(lease, int64(def.ResponseTimeout)), append(beat, int64(def.HeartbeatTimeout)), append(closing, int64(def.StartToCloseTimeout))
	}
	if len(ns) == 0 {
		return nil
	}
	_, err := a.exec(ctx, "policies_insert", "", ns, revs, lease, beat, closing)
	return err
}

func definition(c Change) *schema.TaskDefinition {
	if c.Want == nil {
		return nil
	}
	def, _ := c.Want.Object.(*schema.TaskDefinition)
	return def
}

func (a *applying) writeSemaphores(ctx context.Context) error {
	var ns, ids []int32
	var permits []int64
	for _, c := range a.changes {
		if c.Want == nil {
			continue
		}
		if sem, ok := c.Want.Object.(*schema.Semaphore); ok {
			key := a.ids[c.address()]
			ns, ids, permits = append(ns, key[0]), append(ids, key[1]), append(permits, sem.Permits)
		}
	}
	if len(ns) == 0 {
		return nil
	}
	_, err := a.exec(ctx, "semaphores_upsert", "", ns, ids, permits)
	return err
}

// writeDefinitions writes the live settings of definitions (P6): cap, budget, semaphores, and whether their queues are gated.
func (a *applying) writeDefinitions(ctx context.Context) error {
	var ns, ids, semNS, semIDs []int32
	var limits []int64
	var budgets []float32
	var gated []bool
	var semSpaces, semNames []string
	for _, c := range a.changes {
		def := definition(c)
		if def == nil {
			continue
		}
		key := a.ids[c.address()]
		ns, ids = append(ns, key[0]), append(ids, key[1])
		limits, budgets = append(limits, def.ConcurrentExecLimit), append(budgets, float32(def.RetryBudget))
		gated = append(gated, def.ConcurrentExecLimit > 0 || len(def.Semaphores) > 0)
		for _, ref := range def.Semaphores {
			semNS, semIDs = append(semNS, key[0]), append(semIDs, key[1])
			semSpaces, semNames = append(semSpaces, ref.Namespace), append(semNames, ref.Name)
		}
	}
	if len(ns) == 0 {
		return nil
	}
	if _, err := a.exec(ctx, "def_flow_upsert", "", ns, ids, limits, budgets); err != nil {
		return err
	}
	if _, err := a.exec(ctx, "def_sem_delete", "", ns, ids); err != nil {
		return err
	}
	if len(semNS) > 0 {
		n, err := a.exec(ctx, "def_sem_insert", "", semNS, semIDs, semSpaces, semNames)
		if err != nil {
			return err
		}
		if int(n) != len(semNS) {
			return fmt.Errorf("%d of %d semaphores named by definitions do not exist", len(semNS)-int(n), len(semNS))
		}
	}
	_, err := a.exec(ctx, "queues_gate", "", ns, ids, gated)
	return err
}

// writeHistory writes the generation, what it changed, and the log.
func (a *applying) writeHistory(ctx context.Context) error {
	sum := a.summary()
	if _, err := a.exec(ctx, "generation_insert", "", a.req.Project, a.gen, a.req.Digest[:], orNull(a.req.Commit), orNull(a.req.Branch), a.req.Actor,
		a.req.Build, orNull(a.req.Reason), int64(sum.Added), int64(sum.Changed), int64(sum.Retired), a.now); err != nil {
		return err
	}
	var ns, ids, before, after, auditNS []int32
	var actions, verbs, objects []string
	var was, is [][]byte
	for _, c := range a.changes {
		key, old, revision := a.ids[c.address()], int32(0), a.revs[c.address()]
		if c.Base != nil {
			old = c.Base.Revision
		}
		if c.Action == ActionRetire {
			revision = old
		}
		ns, ids, actions = append(ns, key[0]), append(ids, key[1]), append(actions, string(c.Action))
		before, after = append(before, old), append(after, revision)
		auditNS, verbs, objects = append(auditNS, key[0]), append(verbs, string(c.Action)), append(objects, c.address().String())
		was, is = append(was, auditState(c.Base)), append(is, fmt.Appendf(nil, `{"revision":%d,"retired":%t}`, revision, c.Action == ActionRetire))
	}
	if len(ns) > 0 {
		if _, err := a.exec(ctx, "changes_insert", "", a.req.Project, a.gen, ns, ids, actions, before, after); err != nil {
			return err
		}
	}
	auditNS, verbs, objects = append(auditNS, 0), append(verbs, "apply"), append(objects, "Project/"+a.req.Project)
	was = append(was, fmt.Appendf(nil, `{"generation":%d}`, a.project.Generation))
	is = append(is, fmt.Appendf(nil, `{"generation":%d,"digest":"sha256:%x"}`, a.gen, a.req.Digest))
	_, err := a.exec(ctx, "audit_insert", "", auditNS, verbs, objects, was, is, a.now, a.req.Actor, a.req.Project, a.gen, orNull(a.req.Commit), orNull(a.req.Reason))
	return err
}

// auditState says what an object was before; nothing for an added one.
func auditState(o *RegisteredObject) []byte {
	if o == nil {
		return nil
	}
	return fmt.Appendf(nil, `{"revision":%d,"retired":%t}`, o.Revision, !o.RetiredAt.IsZero())
}
