package api

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"nf/runtime/engine"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/schema"
)

// hold says which gate holds a ready task: the last verdict of its definition, while it is fresh (A22).
func (a *Task) hold(t *engine.Task, now time.Time) {
	if t.Status != "SCHEDULED" || t.Delayed || len(t.Verdict) == 0 || now.Sub(t.VerdictAt) > queue.VerdictFor {
		return
	}
	var v queue.Verdict
	if json.Unmarshal(t.Verdict, &v) != nil || v.Control == "" {
		return
	}
	a.Control, a.Limit, a.Current, a.AlsoClosed = v.Control, &v.Limit, &v.Current, v.AlsoClosed
	since := v.Since
	if since.Before(t.DueAt) {
		since = t.DueAt
	}
	a.HeldSince = instant(since)
}

// QueueFigures are what a queue holds. Counts are numbers, or "10000+".
type QueueFigures struct {
	Queue              string  `json:"queue"`
	Ready              any     `json:"ready"`
	Delayed            any     `json:"delayed"`
	Leased             any     `json:"leased"`
	OldestReadySeconds float64 `json:"oldestReadySeconds"`
	Pollers            int64   `json:"pollers"`
	Retired            bool    `json:"retired"`
}

// most is how far a depth counts unless it is asked for exactly.
const most = 10_000

// bounded shows a count; beyond 10,000 it is a text that says so.
func bounded(n int64) any {
	if n > most {
		return "10000+"
	}
	return n
}

func (c *call) listQueues() (any, error) {
	figures, err := c.s.Store.QueueList(c.Context(), c.nsNo)
	if err != nil {
		return nil, err
	}
	snapshot := c.s.Registry.Snapshot()
	seen := map[string]bool{}
	items := []QueueFigures{}
	for _, f := range figures {
		name := f.Name
		if f.Domain != "" {
			name += ":" + f.Domain
		}
		seen[name] = true
		a := QueueFigures{Queue: name, Ready: bounded(f.Ready), Delayed: bounded(f.Delayed), Leased: bounded(f.Leased), OldestReadySeconds: f.OldestReadySeconds, Pollers: f.Pollers}
		if o, ok := snapshot.ObjectByID(c.nsNo, f.DefID); ok && f.DefID > 0 {
			a.Retired = o.Retired()
		}
		if a.Retired && f.Ready+f.Delayed+f.Leased == 0 {
			continue
		}
		items = append(items, a)
	}
	for _, name := range c.workerQueues() { // queues that nothing was ever put into
		if !seen[name] {
			items = append(items, QueueFigures{Queue: name, Ready: 0, Delayed: 0, Leased: 0})
		}
	}
	slices.SortFunc(items, func(a, b QueueFigures) int { return strings.Compare(a.Queue, b.Queue) })
	return page(items, ""), nil
}

// workerQueues names the definitions in force that a SIMPLE task of a workflow in force uses.
func (c *call) workerQueues() []string {
	snapshot := c.s.Registry.Snapshot()
	used := map[string]bool{}
	for _, o := range snapshot.Objects(schema.KindWorkflow, c.nsNo) {
		w, ok := o.Value.(*schema.Workflow)
		if !ok || o.Retired() {
			continue
		}
		eachTask(w.Tasks, func(t *schema.Task) {
			if t.Type == schema.TypeSimple {
				used[t.Definition] = true
			}
		})
	}
	return sortedKeys(used)
}

func eachTask(tasks []*schema.Task, visit func(*schema.Task)) {
	for _, t := range tasks {
		visit(t)
		for _, name := range sortedKeys(t.DecisionCases) {
			eachTask(t.DecisionCases[name], visit)
		}
		eachTask(t.DefaultCase, visit)
		for _, branch := range t.ForkTasks {
			eachTask(branch, visit)
		}
	}
}

func (c *call) depth() (any, error) {
	name := c.pathText("queue")
	exact := c.URL.Query().Get("exact")
	if exact != "" && exact != "true" && exact != "false" {
		return nil, invalid("exact", "true or false", "exact is true or false")
	}
	defID := int32(0)
	if o, ok := c.s.Registry.Snapshot().Object(schema.Address{Kind: schema.KindTaskDefinition, Namespace: c.ns, Name: name}); ok {
		defID = o.ID
	}
	limit := int64(most + 1)
	if exact == "true" {
		limit = 1 << 40
	}
	figures, found, err := c.s.Store.QueueDepth(c.Context(), c.nsNo, name, defID, limit)
	if err != nil {
		return nil, err
	}
	if !found && defID == 0 {
		return nil, notFound("queue %q does not exist%s", cut(name, 320), nearest(name, c.workerQueues()))
	}
	show := bounded
	if exact == "true" {
		show = func(n int64) any { return n }
	}
	return map[string]any{"queue": name, "ready": show(figures.Ready), "delayed": show(figures.Delayed), "leased": show(figures.Leased), "oldestReadySeconds": figures.OldestReadySeconds}, nil
}

// WorkerSeen is a worker that polled in the last 24 hours.
type WorkerSeen struct {
	WorkerID   string `json:"workerId"`
	Queue      string `json:"queue"`
	LastPollAt string `json:"lastPollAt"`
	Leased     int64  `json:"leased"`
}

func (c *call) listWorkers() (any, error) {
	seen, err := c.s.Store.WorkersSeen(c.Context(), c.nsNo)
	if err != nil {
		return nil, err
	}
	items := make([]WorkerSeen, 0, len(seen))
	for _, w := range seen {
		name := w.Queue
		if w.Domain != "" {
			name += ":" + w.Domain
		}
		items = append(items, WorkerSeen{WorkerID: w.Worker, Queue: name, LastPollAt: instant(w.PolledAt), Leased: w.Leased})
	}
	return page(items, ""), nil
}

// SemaphoreFigures are the permits of a semaphore.
type SemaphoreFigures struct {
	Name    string `json:"name"`
	Permits int64  `json:"permits"`
	Held    int64  `json:"held"`
}

func (c *call) listSemaphores() (any, error) {
	all, err := c.s.Store.SemaphoreList(c.Context(), c.nsNo)
	if err != nil {
		return nil, err
	}
	items := make([]SemaphoreFigures, 0, len(all))
	for _, s := range all {
		items = append(items, SemaphoreFigures{Name: s.Name, Permits: s.Permits, Held: s.Held})
	}
	return page(items, ""), nil
}

// metadataKinds are the kinds by their word in a path.
var metadataKinds = map[string]schema.Kind{
	"task-definitions": schema.KindTaskDefinition, "workflows": schema.KindWorkflow, "semaphores": schema.KindSemaphore, "targets": schema.KindTarget,
}

type ownerAnswer struct {
	Project string `json:"project"`
	File    string `json:"file"`
	Line    int32  `json:"line"`
	Commit  string `json:"commit,omitempty"`
}

type objectAnswer struct {
	Kind      schema.Kind       `json:"kind"`
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels,omitempty"`
	Spec      json.RawMessage   `json:"spec"`
	Revision  int32             `json:"revision"`
	Version   int64             `json:"version,omitempty"`
	Digest    string            `json:"digest"`
	Owner     *ownerAnswer      `json:"owner,omitempty"`
	RetiredAt string            `json:"retiredAt,omitempty"`
}

func (c *call) metadataKind() (schema.Kind, error) {
	word := c.pathText("kind")
	kind, ok := metadataKinds[word]
	if !ok {
		return "", notFound("there are no %s; use %s", cut(word, 50), strings.Join(sortedKeys(metadataKinds), ", "))
	}
	return kind, nil
}

func (c *call) listMetadata() (any, error) {
	kind, err := c.metadataKind()
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	limit, err := queryInt(query, "limit", 50, 1, 500)
	if err != nil {
		return nil, err
	}
	last := ""
	if text := query.Get("cursor"); text != "" {
		if last, err = readCursor(text, ""); err != nil {
			return nil, err
		}
	}
	items, next := []objectAnswer{}, ""
	for _, o := range c.s.Registry.Snapshot().Objects(kind, c.nsNo) {
		if o.Address.Name <= last {
			continue
		}
		if len(items) == int(limit) {
			next = writeCursor(items[limit-1].Name, "")
			break
		}
		items = append(items, c.object(o, o.Spec, o.Revision, o.Version, o.Digest))
	}
	return page(items, next), nil
}

func (c *call) getMetadata() (any, error) {
	kind, err := c.metadataKind()
	if err != nil {
		return nil, err
	}
	name := c.pathText("name")
	o, ok := c.s.Registry.Snapshot().Object(schema.Address{Kind: kind, Namespace: c.ns, Name: name})
	if !ok {
		return nil, notFound("%s %q does not exist in namespace %q", kind, cut(name, 255), c.ns)
	}
	if text := c.pathText("revision"); text != "" {
		return c.revision(o, text)
	}
	return c.object(o, o.Spec, o.Revision, o.Version, o.Digest), nil
}

// object shows a declared object.
func (c *call) object(o *registry.Object, spec []byte, revision int32, version int64, digest [32]byte) objectAnswer {
	out := objectAnswer{
		Kind: o.Address.Kind, Name: o.Address.Name, Namespace: o.Address.Namespace, Spec: spec, Revision: revision, Version: version,
		Digest: "sha256:" + hex.EncodeToString(digest[:]), RetiredAt: instant(o.RetiredAt),
	}
	if o.Value != nil {
		out.Labels = o.Value.Meta().Labels
	}
	if o.Owner.Project != "" {
		out.Owner = &ownerAnswer{Project: o.Owner.Project, File: o.Owner.File, Line: o.Owner.Line, Commit: o.Owner.Commit}
	}
	return out
}

// revision shows an object at one of its revisions.
func (c *call) revision(o *registry.Object, text string) (any, error) {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 1 {
		return nil, notFound("%s has no revision %q", o.Address, cut(text, 20))
	}
	revID, err := c.s.Store.RevisionOfNumber(c.Context(), o.NS, o.ID, int32(number))
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("%s has no revision %d", o.Address, number)
	}
	if err != nil {
		return nil, err
	}
	found, err := c.s.Store.Revisions(c.Context(), []store.RevisionKey{{NS: o.NS, RevID: revID}})
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, notFound("%s has no revision %d", o.Address, number)
	}
	return c.object(o, found[0].Spec, found[0].Number, found[0].Version, found[0].Digest), nil
}

// workflows names the workflows in force of the namespace.
func (c *call) workflows() []string {
	var names []string
	for _, o := range c.s.Registry.Snapshot().Objects(schema.KindWorkflow, c.nsNo) {
		if !o.Retired() {
			names = append(names, o.Address.Name)
		}
	}
	return names
}
