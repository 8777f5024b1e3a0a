package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nf/runtime/api"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Tasks lists attempts, one a line.
func Tasks(tasks []api.Task) string {
	rows := make([][]string, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		rows[i] = []string{t.TaskID, t.Ref, strconv.Itoa(int(t.Attempt)), t.Type, shownStatus(t), t.Control, t.Cause, cutText(strings.TrimSpace(t.Reason), 80)}
	}
	return Table([]string{"TASK ID", "REFERENCE", "ATTEMPT", "TYPE", "STATUS", "CONTROL", "CAUSE", "REASON"}, rows)
}

// Executions lists executions, one a line.
func Executions(list []api.Execution) string {
	rows := make([][]string, len(list))
	for i := range list {
		x := &list[i]
		took := ""
		if d, ok := Between(x.StartedAt, x.EndedAt); ok {
			took = d.String()
		}
		rows[i] = []string{x.ExecutionID, x.Workflow, x.Status, x.StartedAt, took, x.Cause, x.FailedTask}
	}
	return Table([]string{"EXECUTION", "WORKFLOW", "STATUS", "STARTED", "TOOK", "CAUSE", "FAILED TASK"}, rows)
}

// Queues lists queues, one a line.
func Queues(list []api.QueueFigures) string {
	rows := make([][]string, len(list))
	for i := range list {
		q := &list[i]
		note := ""
		if q.Retired {
			note = "retired"
		}
		rows[i] = []string{q.Queue, Count(q.Ready), Count(q.Delayed), Count(q.Leased), Seconds(q.OldestReadySeconds), strconv.FormatInt(q.Pollers, 10), note}
	}
	return Table([]string{"QUEUE", "READY", "DELAYED", "LEASED", "OLDEST READY", "POLLERS", ""}, rows)
}

// Count shows a number, or the text that stands for one above 10,000.
func Count(v any) string {
	switch n := v.(type) {
	case string:
		return n
	case float64:
		return strconv.FormatInt(int64(n), 10)
	}
	return fmt.Sprint(v)
}

// Seconds shows a time span given in seconds.
func Seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return strconv.FormatFloat(s, 'f', 1, 64) + "s"
}

// Workers lists the workers seen, one a line.
func Workers(list []api.WorkerSeen) string {
	rows := make([][]string, len(list))
	for i, w := range list {
		rows[i] = []string{w.WorkerID, w.Queue, w.LastPollAt, strconv.FormatInt(w.Leased, 10)}
	}
	return Table([]string{"WORKER", "QUEUE", "LAST POLL", "LEASED"}, rows)
}

// Semaphores lists semaphores, one a line.
func Semaphores(list []api.SemaphoreFigures) string {
	rows := make([][]string, len(list))
	for i, s := range list {
		rows[i] = []string{s.Name, strconv.FormatInt(s.Permits, 10), strconv.FormatInt(s.Held, 10)}
	}
	return Table([]string{"SEMAPHORE", "PERMITS", "HELD"}, rows)
}

// LogHead names the attempt whose log follows: which of how many it is, and why it ended.
func LogHead(t *api.Task, lines int) string {
	tries := strings.TrimSpace(Tries(t))
	if tries == "" && lines > 0 {
		return ""
	}
	parts := []string{nameOf(t)}
	if tries != "" {
		parts = append(parts, tries)
	}
	if t.EndedAt != "" {
		parts = append(parts, shownStatus(t))
		if why := Why(t); why != "" {
			parts = append(parts, why)
		}
		if lines == 0 {
			parts = append(parts, "(logged nothing)")
		}
	}
	return strings.Join(parts, "  ") + "\n"
}

// Log shows lines of a task log.
func Log(lines []api.LogLine) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s  %-5s  %s\n", l.At, Safe(l.Level), Safe(l.Message))
	}
	return b.String()
}
