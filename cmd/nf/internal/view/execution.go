package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"nf/runtime/api"
	"nf/runtime/execution"
)

// Node is a task of a workflow with the tasks inside it: the shape of the tree. It reads the spec of a Workflow as the API gives it.
type Node struct {
	Ref   string            `json:"taskReferenceName"`
	Type  string            `json:"type"`
	Cases map[string][]Node `json:"decisionCases"`
	Else  []Node            `json:"defaultCase"`
	Forks [][]Node          `json:"forkTasks"`
}

// Outline is the spec of a Workflow, as far as the tree needs it.
type Outline struct {
	Tasks []Node `json:"tasks"`
}

// Execution draws one execution as a tree: each attempt with its delay, reason and output. Without an outline the tasks stand in the order
// in which they were scheduled.
func Execution(x *api.Execution, outline Outline) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  revision %d  %s\n", Safe(x.Workflow), x.ExecutionID, x.Revision, statusLine(x))
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name, value)
		}
	}
	line("started", span(x.StartedAt, x.EndedAt))
	if x.EndedAt == "" {
		line("deadline", x.DeadlineAt)
	}
	line("cause", Safe(x.Cause))
	line("failed", Safe(x.FailedTask))
	line("reason", executionReason(x))
	line("input", payload(x.Input))
	line("output", payload(x.Output))
	line("variables", payload(x.Variables))
	t := newTree(x, outline)
	t.draw(&b, t.roots, "  ")
	if x.TasksTruncated {
		b.WriteString("  … more tasks: nf task list " + x.ExecutionID + "\n")
	}
	if strings.Contains(b.String(), cutMark+"\n") {
		fmt.Fprintf(&b, "  Texts that end in%s are cut: nf get %s -o json has them whole.\n", cutMark, x.ExecutionID)
	}
	return b.String()
}

// payload shows JSON unless it is absent or empty.
func payload(raw []byte) string {
	if len(raw) <= len("{}") {
		return ""
	}
	return compact(raw)
}

func statusLine(x *api.Execution) string {
	if x.AwaitingAdmission {
		return x.Status + " (awaiting admission)"
	}
	return x.Status
}

// branch is a line of the tree with what stands below it.
type branch struct {
	label    string // of a fork's branch or a case; else the attempts speak
	attempts []*api.Task
	below    []branch
}

type tree struct {
	roots []branch
	wide  int // width of the column of names, of the deepest level
}

// newTree puts the attempts where the outline has their tasks. Tasks that were not reached are left out.
func newTree(x *api.Execution, outline Outline) tree {
	byRef := map[string][]*api.Task{}
	var order []string
	for i := range x.Tasks {
		ref := x.Tasks[i].Ref
		if byRef[ref] == nil {
			order = append(order, ref)
		}
		byRef[ref] = append(byRef[ref], &x.Tasks[i])
	}
	t := tree{roots: arrange(outline.Tasks, byRef)}
	for _, ref := range order {
		if attempts, left := byRef[ref]; left {
			t.roots = append(t.roots, branch{attempts: attempts})
		}
	}
	t.wide = widest(t.roots, 0)
	return t
}

// arrange takes what it places out of byRef.
func arrange(nodes []Node, byRef map[string][]*api.Task) []branch {
	var out []branch
	for i := range nodes {
		n := &nodes[i]
		attempts := byRef[n.Ref]
		delete(byRef, n.Ref)
		var below []branch
		for _, name := range sortedKeys(n.Cases) {
			below = appendCase(below, "case "+name, arrange(n.Cases[name], byRef))
		}
		below = appendCase(below, "default case", arrange(n.Else, byRef))
		for no, fork := range n.Forks {
			if inside := arrange(fork, byRef); len(inside) > 0 {
				below = append(below, branch{label: "branch " + strconv.Itoa(no+1), below: inside})
			}
		}
		if len(attempts)+len(below) > 0 {
			b := branch{attempts: attempts, below: below}
			if len(attempts) == 0 {
				b.label = n.Ref
			}
			out = append(out, b)
		}
	}
	return out
}

// appendCase adds a case of a SWITCH; one that was not taken is a line without its tasks.
func appendCase(to []branch, label string, inside []branch) []branch {
	switch {
	case len(inside) == 0:
		return to
	case notTaken(inside):
		return append(to, branch{label: label + " (not taken)"})
	}
	return append(to, branch{label: label, below: inside})
}

func notTaken(list []branch) bool {
	for i := range list {
		for _, a := range list[i].attempts {
			if a.Cause != string(execution.CauseBranchNotTaken) {
				return false
			}
		}
		if !notTaken(list[i].below) {
			return false
		}
	}
	return true
}

// indent is the width of one level of the tree.
const indent = 3

func widest(list []branch, depth int) int {
	wide := 0
	for i := range list {
		if len(list[i].attempts) > 0 {
			wide = max(wide, depth*indent+utf8.RuneCountInString(nameOf(list[i].attempts[0])))
		}
		wide = max(wide, widest(list[i].below, depth+1))
	}
	return wide
}

func (t *tree) draw(b *strings.Builder, list []branch, trunk string) {
	for i := range list {
		fork, below := "├─ ", "│  "
		if i == len(list)-1 {
			fork, below = "└─ ", "   "
		}
		if list[i].label != "" {
			fmt.Fprintf(b, "%s%s%s\n", trunk, fork, Safe(list[i].label))
		}
		inner := trunk + below
		if len(list[i].below) > 0 {
			inner += "│  "
		} else {
			inner += "   "
		}
		for n, a := range list[i].attempts {
			head := trunk + fork
			if n > 0 {
				head = trunk + below
			}
			t.attempt(b, a, head, inner, n == 0)
		}
		t.draw(b, list[i].below, trunk+below)
	}
}

func nameOf(a *api.Task) string {
	name := Safe(a.Ref)
	if a.Iteration != "0" && a.Iteration != "" {
		name += "#" + Safe(a.Iteration)
	}
	return name
}

// attempt draws one attempt. The first one of a task names it; later ones stand below.
func (t *tree) attempt(b *strings.Builder, a *api.Task, head, inner string, first bool) {
	name, kind := nameOf(a), a.Type
	if !first {
		name, kind = "", ""
	}
	used := utf8.RuneCountInString(head) - len("  ") - indent
	fmt.Fprintf(b, "%s%s  %-12s %s%s%s\n", head, pad(name, t.wide-used), Safe(kind), shownStatus(a), Tries(a), took(a))
	detail := func(text string) {
		if text != "" {
			fmt.Fprintf(b, "%s%s\n", inner, text)
		}
	}
	detail(Why(a))
	if a.AttemptsExhausted {
		detail("no attempts left")
	}
	detail(held(a))
	if a.Delayed {
		detail("due " + a.DueAt)
	}
	if a.Delay != nil {
		detail(delayText(a.Delay))
	}
	if text := payload(a.Input); text != "" {
		detail("← " + text)
	}
	if text := payload(a.Output); text != "" {
		detail("→ " + text)
	}
}

func pad(s string, wide int) string {
	return s + strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(s)))
}

// Tries says which attempt of how many this is, when there may be several.
func Tries(a *api.Task) string {
	text := ""
	if a.MaxAttempts > 1 || a.Attempt > 1 {
		text = fmt.Sprintf("  attempt %d of %d", a.Attempt, max(a.MaxAttempts, a.Attempt))
	}
	if a.Delivery > 1 {
		text += fmt.Sprintf("  delivery %d", a.Delivery)
	}
	return text
}

// Why says why an attempt ended as it did, in one line.
func Why(a *api.Task) string {
	reason := reasonLine(a.Reason, longText)
	if a.Cause == string(execution.CauseHTTPStatus) {
		reason = answerLine(a.Reason)
	}
	switch {
	case reason == "":
		return Safe(a.Cause)
	case a.Cause == "":
		return reason
	}
	return Safe(a.Cause) + ": " + reason
}

// reasonLine shows a reason, often the end of what a program printed, in one line.
func reasonLine(text string, limit int) string {
	return Safe(strings.ReplaceAll(cutText(strings.TrimSpace(text), limit), "\n", " ⏎ "))
}

// answerLine shows a reason that holds the beginning of an answer's body, which may be a page of HTML: enough to know it by. The body is in
// the output.
func answerLine(text string) string {
	return Safe(cutText(strings.Join(strings.Fields(text), " "), answerText))
}

// answerText is how many bytes of such a reason are shown.
const answerText = 200

// executionReason shows why an execution ended. The failed task has the whole story below.
func executionReason(x *api.Execution) string {
	if strings.Contains(x.Reason, string(execution.CauseHTTPStatus)+": ") {
		return answerLine(x.Reason)
	}
	return reasonLine(x.Reason, 4*longText)
}

func shownStatus(a *api.Task) string {
	if a.AttemptStatus != "" {
		return a.Status + " (" + a.AttemptStatus + ", optional)"
	}
	if a.Delayed {
		return a.Status + " (delayed)"
	}
	return a.Status
}

func held(a *api.Task) string {
	if a.Control == "" {
		return ""
	}
	text := "held by " + Safe(a.Control)
	if a.Limit != nil && a.Current != nil {
		text += fmt.Sprintf(" (%d of %d)", *a.Current, *a.Limit)
	}
	return text
}

func delayText(d *api.Delay) string {
	text := "next attempt after " + millis(d.SelectedMs)
	if d.ProviderMinimumMs > 0 {
		return text + fmt.Sprintf(" (policy %s, %s asked for %s)", millis(d.PolicyMs), source(d.Source), millis(d.ProviderMinimumMs))
	}
	return text + " (policy)"
}

func source(name string) string {
	switch name {
	case "retryAfter":
		return "Retry-After"
	case "retryInfo":
		return "RetryInfo"
	case "worker":
		return "the worker"
	}
	return "the provider"
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// took says how long an attempt took from its lease, or from when it was scheduled where there was none.
func took(a *api.Task) string {
	from := a.LeasedAt
	if from == "" {
		from = a.ScheduledAt
	}
	d, ok := Between(from, a.EndedAt)
	if !ok {
		return ""
	}
	return "  " + d.String()
}

// Between gives the time between two instants of the API.
func Between(from, to string) (time.Duration, bool) {
	a, err1 := time.Parse(time.RFC3339Nano, from)
	b, err2 := time.Parse(time.RFC3339Nano, to)
	return b.Sub(a), err1 == nil && err2 == nil
}

func span(from, to string) string {
	if d, ok := Between(from, to); ok {
		return fmt.Sprintf("%s, took %s", from, d)
	}
	return from
}
