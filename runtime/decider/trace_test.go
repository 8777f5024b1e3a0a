package decider

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/schema"
)

var update = flag.Bool("update", false, "rewrite the golden traces")

// tracer writes what each decision says, as people would read it.
type tracer struct {
	*world
	out strings.Builder
}

func (tr *tracer) say(title string, facts ...execution.Fact) {
	fmt.Fprintf(&tr.out, "%s  %s\n", tr.now.Format("15:04:05.000"), title)
	d := tr.step(facts...)
	for _, row := range d.Ended {
		fmt.Fprintf(&tr.out, "    %3d  %s #%d %s", row.Seq, tr.p.Ref(row.Slot), row.Attempt, row.Status.RunName(false))
		tr.detail(row)
	}
	for _, e := range d.Events {
		fmt.Fprintf(&tr.out, "    %3d  event %s %s\n", e.Seq, e.What, e.Detail)
	}
	for _, s := range d.Schedules {
		tr.scheduled(s)
	}
	for _, c := range d.Scopes {
		gone := ""
		if c.Delete {
			gone = ", ended"
		}
		fmt.Fprintf(&tr.out, "         scope %s: %d of %d open, %d pending%s\n", tr.p.Ref(c.Scope.Slot), c.Scope.Open, c.Scope.Width, c.Scope.Pending, gone)
	}
	if c := d.Closing; c != nil {
		fmt.Fprintf(&tr.out, "         execution %s", c.Status)
		if c.Cause != "" {
			fmt.Fprintf(&tr.out, ", %s", c.Cause)
		}
		if c.Reason != "" {
			fmt.Fprintf(&tr.out, " (%s)", c.Reason)
		}
		if len(tr.closed.Output) > 0 {
			fmt.Fprintf(&tr.out, ", output %s", tr.closed.Output)
		}
		tr.out.WriteString("\n")
	}
}

func (tr *tracer) detail(row execution.TaskRow) {
	if row.Absorbed {
		tr.out.WriteString(", absorbed: COMPLETED_WITH_ERRORS")
	}
	if row.Cause != "" {
		fmt.Fprintf(&tr.out, ", %s", row.Cause)
	}
	if row.Reason != "" {
		fmt.Fprintf(&tr.out, " (%s)", row.Reason)
	}
	if row.Exhausted {
		tr.out.WriteString(", attempts exhausted")
	}
	if !row.NextDueAt.IsZero() {
		fmt.Fprintf(&tr.out, ", again at %s by %s", row.NextDueAt.Format("15:04:05.000"), row.DelaySource)
	}
	if len(row.Output) > 0 {
		fmt.Fprintf(&tr.out, ", output %s", row.Output)
	}
	tr.out.WriteString("\n")
}

func (tr *tracer) scheduled(s execution.Schedule) {
	at := s.Attempt
	fmt.Fprintf(&tr.out, "         %s #%d ", tr.p.Ref(at.Slot), at.Attempt)
	switch {
	case at.Place == execution.InReady:
		fmt.Fprintf(&tr.out, "ready in queue %s", s.Queue.Name)
	case at.Why == execution.WhyOperatorDeadline:
		tr.out.WriteString("open")
	default:
		fmt.Fprintf(&tr.out, "parked until %s", at.VisibleAt.Format("15:04:05.000"))
	}
	if !at.AttBy.IsZero() {
		fmt.Fprintf(&tr.out, ", times out at %s", at.AttBy.Format("15:04:05.000"))
	}
	if s.Input != nil {
		fmt.Fprintf(&tr.out, ", input %s", s.Input)
	}
	tr.out.WriteString("\n")
}

func (tr *tracer) golden(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", "trace", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(tr.out.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), tr.out.String(), "go test ./runtime/decider -run Trace -update rewrites it")
}

func trace(t *testing.T, w *schema.Workflow, defs *declared, input string) *tracer {
	t.Helper()
	tr := &tracer{world: newWorld(t, w, defs, input)}
	tr.say("started with "+input, execution.Started{})
	return tr
}

func TestTraceOrder(t *testing.T) {
	t.Parallel()
	charge := task("charge", schema.TypeHTTP, named("payment"), with("target", "bank"), with("path", "/charges/${workflow.input.order}"))
	ship := choice("how", "${workflow.input.express}", map[string][]*schema.Task{
		"true": seq(simple("courier")), "false": seq(task("batch", schema.TypeWait, with("duration", "2h")), simple("post")),
	})
	wf := workflow(
		task("mark", schema.TypeSetVariable, with("order", "${workflow.input.order}")),
		fork("both", seq(charge, simple("receipt", optional, retries(0))), seq(ship)),
		join("done"),
		task("end", schema.TypeTerminate, with("workflowOutput", map[string]any{"order": "${workflow.variables.order}", "paid": "${charge.output.body.id}"})),
	)
	defs := declare(plain("work"), plain("payment", func(d *schema.TaskDefinition) { d.Retry.Jitter, d.Timeout = 0.2, 30_000 }))
	tr := trace(t, wf, defs, `{"order":"A 7","express":false}`)
	f := tr.failed("charge", "503 Service Unavailable from https://bank/charges: busy")
	f.Cause, f.MinWait, f.Source = execution.CauseHTTPStatus, 5000, "retryAfter"
	tr.now = tr.now.Add(250 * time.Millisecond)
	tr.say("charge answers 503, Retry-After 5", f)
	done := tr.completed("charge", `{"status":200,"body":{"id":"ch_1"}}`)
	tr.say("charge answers 200", done)
	tr.say("receipt fails", tr.failed("receipt", "printer on fire"))
	tr.say("the wait is over", tr.elapsed("batch"))
	tr.say("post completes", tr.completed("post", `{"label":"L1"}`))
	tr.golden(t, "order")
}

func TestTraceTimeouts(t *testing.T) {
	t.Parallel()
	defs := declare(
		plain("work"),
		plain("retry", func(d *schema.TaskDefinition) {
			d.TimeoutPolicy, d.Timeout, d.Retry.RetryCount = schema.TimeoutRetry, 10_000, 1
		}),
		plain("alert", func(d *schema.TaskDefinition) { d.TimeoutPolicy, d.Timeout = schema.TimeoutAlertOnly, 10_000 }),
		plain("gather", func(d *schema.TaskDefinition) { d.Timeout = 60_000 }),
	)
	wf := workflow(
		simple("first", named("alert")),
		fork("f", seq(simple("a", named("retry"), optional)), seq(simple("b"))), task("j", schema.TypeJoin, named("gather")),
	)
	tr := trace(t, wf, defs, `{}`)
	tr.say("first misses its deadline", tr.missed("first", execution.ClassTaskTimeout))
	tr.say("first completes all the same", tr.completed("first", ""))
	tr.say("a misses its deadline", tr.missed("a", execution.ClassTaskTimeout))
	tr.say("a misses it again", tr.missed("a", execution.ClassTaskTimeout))
	tr.say("the join misses its own", tr.missed("j", execution.ClassTaskTimeout))
	tr.golden(t, "timeouts")
}

func TestTraceBudget(t *testing.T) {
	t.Parallel()
	wf := workflow(fork("f", seq(simple("a")), seq(simple("b"))), join("j"))
	tr := trace(t, wf, declare(plain("work")), `{}`)
	tr.limit[1] = 0.3
	tr.budget[1] = execution.Budget{Total: 19, Retries: 6}
	tr.say("a and b fail together", tr.failed("a", "oops"), tr.failed("b", "oops"))
	tr.golden(t, "budget")
}
