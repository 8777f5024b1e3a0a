package view

import (
	"cmp"
	"fmt"
	"slices"
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
	type line struct {
		at   string
		text string
	}
	var found []line
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
		found = append(found, line{eventAt(t), event(now, t, wide)})
	}
	// The tasks come in the order of their scheduling, and who joins late sees much at once: what happened first is told first. Times of the
	// API have one form, so they compare as texts.
	slices.SortStableFunc(found, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	lines := make([]string, 0, len(found)+1)
	for _, l := range found {
		lines = append(lines, l.text)
	}
	if now.EndedAt != "" && (before == nil || before.EndedAt == "") {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%9s  %s %s", since(now.StartedAt, now.EndedAt), now.Status, Safe(now.Cause)), " "))
	}
	return lines
}

// eventAt is when an attempt came to be as it is.
func eventAt(t *api.Task) string { return cmp.Or(t.EndedAt, t.LeasedAt, t.ScheduledAt) }

func event(x *api.Execution, t *api.Task, wide int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%9s  %s  %s%s", since(x.StartedAt, eventAt(t)), pad(nameOf(t), wide), shownStatus(t), Tries(t))
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
