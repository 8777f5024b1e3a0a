package view

import (
	"fmt"
	"strings"
	"time"

	"nf/runtime/api"
)

// Changes tells what happened to an execution between two looks, one line an event, with the time since its start. before may be nil.
func Changes(before, now *api.Execution) []string {
	known := map[string]api.Task{}
	if before != nil {
		for i := range before.Tasks {
			known[before.Tasks[i].TaskID] = before.Tasks[i]
		}
	}
	var lines []string
	wide := 0
	for i := range now.Tasks {
		wide = max(wide, len(nameOf(&now.Tasks[i])))
	}
	for i := range now.Tasks {
		t := &now.Tasks[i]
		old, seen := known[t.TaskID]
		if seen && old.Status == t.Status && old.Delivery == t.Delivery && old.Delayed == t.Delayed && old.Control == t.Control {
			continue
		}
		lines = append(lines, event(now, t, wide))
	}
	if now.EndedAt != "" && (before == nil || before.EndedAt == "") {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%9s  %s %s", since(now.StartedAt, now.EndedAt), now.Status, Safe(now.Cause)), " "))
	}
	return lines
}

func event(x *api.Execution, t *api.Task, wide int) string {
	at := t.EndedAt
	if at == "" {
		at = t.LeasedAt
	}
	if at == "" {
		at = t.ScheduledAt
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%9s  %s  %s%s", since(x.StartedAt, at), pad(nameOf(t), wide), shownStatus(t), Tries(t))
	for _, more := range []string{Why(t), held(t)} {
		if more != "" {
			text.WriteString("  " + more)
		}
	}
	switch {
	case t.Delay != nil:
		text.WriteString("  " + delayText(t.Delay))
	case t.Delayed:
		text.WriteString("  due " + since(x.StartedAt, t.DueAt))
	}
	return text.String()
}

func since(start, at string) string {
	d, ok := Between(start, at)
	if !ok {
		return "?"
	}
	return fmt.Sprintf("+%.3fs", d.Round(time.Millisecond).Seconds())
}
