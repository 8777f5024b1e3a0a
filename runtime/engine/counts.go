package engine

import (
	"nf/runtime/execution"
	"nf/runtime/telemetry"
)

// counts gathers what a transaction will have done, for the metrics after its commit.
type counts struct {
	attempts  map[attemptLabels]int
	closed    map[closedLabels]int
	started   map[closedLabels]int
	deadlines map[execution.DeadlineClass]int
	retries   map[attemptLabels]int
	refused   map[attemptLabels]int
}

type attemptLabels struct {
	namespace, definition string
	kind                  execution.Kind
	status                execution.Status
	cause                 execution.Cause
}

type closedLabels struct {
	namespace, workflow string
	status              execution.Status
}

func plusOne[K comparable](m *map[K]int, key K) {
	if *m == nil {
		*m = map[K]int{}
	}
	(*m)[key]++
}

// definition gives the name of the task definition of a slot.
func (ev *eval) definition(slot int32) string {
	if task := ev.prog.Task(slot); task != nil {
		return task.Definition
	}
	return ""
}

func (c *counts) attempt(ev *eval, slot int32, kind execution.Kind, status execution.Status, cause execution.Cause) {
	plusOne(&c.attempts, attemptLabels{ev.view.Namespace, ev.definition(slot), kind, status, cause})
}

func (c *counts) ended(ev *eval, row execution.TaskRow) {
	c.attempt(ev, row.Slot, row.Kind, row.Status, row.Cause)
	l := attemptLabels{namespace: ev.view.Namespace, definition: ev.definition(row.Slot)}
	if !row.NextDueAt.IsZero() {
		plusOne(&c.retries, l)
	}
	switch row.Cause { //nolint:exhaustive // the causes that say a retry was refused
	case execution.CauseNonRetryable, execution.CauseBudgetExhausted, execution.CauseRetryPastDeadline:
		l.cause = row.Cause
		plusOne(&c.refused, l)
	}
}

func (c *counts) missed(class execution.DeadlineClass) { plusOne(&c.deadlines, class) }

func (c *counts) finished(ev *eval, status execution.Status) {
	plusOne(&c.closed, closedLabels{ev.view.Namespace, ev.view.Workflow, status})
}

func (c *counts) begun(ev *eval) {
	plusOne(&c.started, closedLabels{namespace: ev.view.Namespace, workflow: ev.view.Workflow})
}

// report adds to the metrics of the process.
func (c *counts) report(m *telemetry.Metrics) {
	if m == nil {
		return
	}
	for l, n := range c.attempts {
		m.Attempts.WithLabelValues(l.namespace, m.Name(l.definition), l.kind.String(), l.status.String(), string(l.cause)).Add(float64(n))
		switch class := execution.DeadlineClass(l.cause); class {
		case execution.ClassScheduleToStart, execution.ClassStartToClose, execution.ClassTaskTimeout, execution.ClassTotal:
			m.DeadlineMissed.WithLabelValues(string(class), "END").Add(float64(n))
		}
	}
	for l, n := range c.retries {
		m.RetriesScheduled.WithLabelValues(l.namespace, m.Name(l.definition)).Add(float64(n))
	}
	for l, n := range c.refused {
		m.RetriesRefused.WithLabelValues(l.namespace, m.Name(l.definition), string(l.cause)).Add(float64(n))
	}
	for class, n := range c.deadlines {
		m.DeadlineMissed.WithLabelValues(string(class), "ALERT_ONLY").Add(float64(n))
	}
	for l, n := range c.started {
		m.ExecutionsStarted.WithLabelValues(l.namespace, m.Name(l.workflow)).Add(float64(n))
	}
	for l, n := range c.closed {
		m.ExecutionsFinished.WithLabelValues(l.namespace, m.Name(l.workflow), l.status.String()).Add(float64(n))
	}
}
