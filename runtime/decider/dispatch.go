package decider

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"nf/policies/timeout"
	"nf/runtime/execution"
	"nf/schema"
	"nf/schema/expr"
	"nf/schema/jsontext"
)

// waited is the output of a WAIT whose time has come.
var waited = []byte(`{"waited":true}`)

// resolved is a task's input.
type resolved struct {
	value map[string]any
	text  []byte
}

// keep gives what is stored as the input of a task that was never open: nothing for {}.
func (r resolved) keep() []byte {
	if len(r.value) == 0 {
		return nil
	}
	return r.text
}

// resolve resolves the input of a task when its turn has come, and holds it to inputSchema. ok is false if values must be loaded
// first, or if the input is invalid: e then carries the end of the attempt.
func (m *machine) resolve(n *node, r rules, e *ending) (in resolved, ok bool) {
	v, ok := m.eval(n.input, execution.MaxPayload)
	if !ok {
		if n.kind == execution.KindSetVariable {
			m.foresee(n)
		}
		return resolved{}, false
	}
	value, err, cause := v.value, v.err, execution.CauseInputInvalid
	if err == nil {
		err = schema.CheckSecretRefs(n.task, value)
	} else if limit := (*expr.LimitError)(nil); !errors.As(err, &limit) && !errors.Is(err, jsontext.ErrTooLarge) && !errors.Is(err, jsontext.ErrTooDeep) {
		cause = execution.CauseInvalidRequest // a value that may not stand in a path
	}
	if err == nil && r.pinned.CheckInput != nil {
		err = r.pinned.CheckInput(value)
	}
	if err == nil {
		in.value = value
		if in.text, err = jsontext.Encode(value); err == nil {
			return in, true
		}
	}
	e.status, e.cause, e.reason = execution.FailedTerm, cause, err.Error()
	return resolved{}, false
}

// dispatch schedules the first attempt of a task that is queued: visible now, or after its start delay.
func (m *machine) dispatch(n *node, level int) {
	r := m.firstRules(n)
	at := m.fresh(n)
	at.DefID, at.DefRev = r.pinned.DefID, r.pinned.DefRev
	at.RetriesLeft = int32(r.policy.RetryCount) //nolint:gosec // at most 100
	at.VisibleAt = m.later(n.task.StartDelay)
	e := ending{node: n, at: at, level: level}
	in, ok := m.resolve(n, r, &e)
	if !ok {
		if e.cause != "" {
			e.at.VisibleAt = m.now
			m.finish(e)
		}
		return
	}
	deadlines := timeout.First(r.def, at.VisibleAt)
	at.StartBy, at.AttBy, at.TotalBy = deadlines.StartBy, deadlines.AttBy, deadlines.TotalBy
	m.place(&at, execution.WhyStartDelay)
	m.schedule(execution.Schedule{Attempt: at, Queue: m.queueOf(n, at.DefID, in.value), Input: in.text})
}

// queueOf names the physical queue of a task (contract 1.6). Calls to different Targets, or without a Target to hosts by hash, wait
// apart, so that a slow one hides nothing of the others.
func (m *machine) queueOf(n *node, defID int32, input map[string]any) execution.QueueKey {
	key := execution.QueueKey{NS: m.head.NS, Name: n.task.Definition, DefID: defID}
	if n.class != schema.ClassRunner {
		return key
	}
	key.System, key.Name = true, SystemQueue(n.task.Type, n.task.Definition)
	if name, ok := input["target"].(string); ok {
		if target, ok := m.defs.Target(targetRef(m.view.Namespace, name)); ok {
			key.TargetNS, key.TargetID = target.NS, target.ID
		}
		return key
	}
	if uri, ok := input["uri"].(string); ok {
		key.Shard = Shard(uri)
	}
	return key
}

// SystemQueue names the queue of a task type that the runner executes itself; definition may be empty.
func SystemQueue(t schema.TaskType, definition string) string {
	if definition == "" {
		return "_nf." + string(t)
	}
	return "_nf." + string(t) + "." + definition
}

// targetRef reads `name` or `namespace/name`.
func targetRef(namespace, text string) schema.Ref {
	if ns, name, ok := strings.Cut(text, "/"); ok {
		return schema.Ref{Namespace: ns, Name: name}
	}
	return schema.Ref{Namespace: namespace, Name: text}
}

// shards is how many physical queues calls by uri are spread over.
const shards = 64

// Shard gives the physical queue, 0–63, of a call by uri: a hash of its host and port. A text that is no such URI goes to 0.
func Shard(uri string) int16 {
	host := hostPort(uri)
	if host == "" {
		return 0
	}
	h := uint32(2_166_136_261) // FNV-1a
	for i := range len(host) {
		h = (h ^ uint32(host[i])) * 16_777_619
	}
	return int16(h % shards)
}

// hostPort gives the lower-case host and port of an http or https URI, "" for anything else.
func hostPort(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	port := ""
	switch strings.ToLower(scheme) {
	case "http":
		port = "80"
	case "https":
		port = "443"
	}
	if !ok || port == "" {
		return ""
	}
	if end := strings.IndexAny(rest, `/?#\`); end >= 0 {
		rest = rest[:end]
	}
	rest = strings.ToLower(rest[strings.LastIndexByte(rest, '@')+1:])
	host, given := rest, ""
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, ']') {
		host, given = rest[:colon], rest[colon+1:]
	}
	if host == "" {
		return ""
	}
	if n, err := strconv.ParseUint(given, 10, 16); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	return host + ":" + port
}

// wait parks a WAIT until its time; one that is over already completes at once.
func (m *machine) wait(n *node, level int) {
	r := m.firstRules(n)
	at := m.fresh(n)
	at.DefID, at.DefRev = r.pinned.DefID, r.pinned.DefRev
	at.RetriesLeft = int32(r.policy.RetryCount) //nolint:gosec // at most 100
	visible := m.later(n.task.StartDelay)
	e := ending{node: n, at: at, level: level}
	in, ok := m.resolve(n, r, &e)
	if !ok {
		if e.cause != "" {
			m.finish(e)
		}
		return
	}
	duration, err := schema.ParseWaitDuration(in.value["duration"])
	if err != nil {
		e.status, e.cause, e.reason = execution.FailedTerm, execution.CauseInputInvalid, err.Error()
		e.input = in.keep()
		m.finish(e)
		return
	}
	at.VisibleAt = visible.Add(time.Duration(duration) * time.Millisecond)
	if !at.VisibleAt.After(m.now) {
		e.status, e.output, e.input = execution.Completed, waited, in.keep()
		m.finish(e)
		return
	}
	at.AttBy = timeout.Again(r.def, visible, time.Time{}).AttBy
	park(&at, execution.WhyWait)
	m.schedule(execution.Schedule{Attempt: at, Input: in.text})
}

// wakeAgain is the time at which a WAIT that is retried is over: its duration, counted from due. ok is false if its input must be
// loaded first.
func (m *machine) wakeAgain(n *node, due time.Time) (time.Time, bool) {
	text, ok := m.inputOf(number(n.slot))
	if !ok {
		return time.Time{}, false
	}
	input, _ := decodeLoose(text).(map[string]any)
	duration, err := schema.ParseWaitDuration(input["duration"])
	if err != nil {
		return due, true // it parsed when the task was scheduled
	}
	return due.Add(time.Duration(duration) * time.Millisecond), true
}
