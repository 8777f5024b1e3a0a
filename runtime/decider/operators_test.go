package decider

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nf/runtime/execution"
	"nf/schema"
)

func TestWait(t *testing.T) {
	t.Parallel()
	w := start(t, workflow(task("w", schema.TypeWait, with("duration", "${workflow.input.d}"))), declare(), `{"d":"1m30s"}`)
	require.Equal(t, t0.Add(90*time.Second), w.at("w").VisibleAt)
	require.Equal(t, execution.WhyWait, w.at("w").Why)
	w.now = t0.Add(89 * time.Second)
	d := w.decide(execution.WaitElapsed{Attempt: w.at("w")})
	require.Equal(t, 1, d.Dropped, "never early")
	w.step(w.elapsed("w"))
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"waited":true}`, string(w.closed.Output))

	for _, now := range []any{json.Number("0"), "0s"} {
		w = start(t, workflow(task("w", schema.TypeWait, with("duration", now))), declare(), `{}`)
		w.ended(execution.Completed, "")
	}
	for _, bad := range []string{`{"d":"soon"}`, `{"d":-1}`, `{}`, `{"d":"400 days"}`, `{"d":[1]}`} {
		w = start(t, workflow(task("w", schema.TypeWait, with("duration", "${workflow.input.d}"))), declare(), bad)
		w.ended(execution.Failed, execution.CauseTaskFailed)
		require.Equal(t, execution.CauseInputInvalid, w.row("w").Cause)
		require.Equal(t, execution.FailedTerm, w.row("w").Status)
	}
}

func TestATimeoutShorterThanTheWaitWins(t *testing.T) {
	t.Parallel()
	wait := task("w", schema.TypeWait, with("duration", "10s"), func(t *schema.Task) { t.Timeout = 4000 })
	w := start(t, workflow(wait), declare(), `{}`)
	require.Equal(t, t0.Add(4*time.Second), w.at("w").AttBy)
	w.now = t0.Add(time.Minute) // both are due when the sweep comes by
	w.step(execution.WaitElapsed{Attempt: w.at("w")})
	w.ended(execution.TimedOut, execution.CauseTaskTimedOut)
	require.Equal(t, execution.CauseTaskTimeout, w.row("w").Cause)
}

func TestWaitIsRetriedWithItsWholeDuration(t *testing.T) {
	t.Parallel()
	def := plain("slow", func(d *schema.TaskDefinition) {
		d.TimeoutPolicy, d.Timeout, d.Retry.RetryCount, d.Retry.Delay = schema.TimeoutRetry, 4000, 1, 1000
	})
	wait := task("w", schema.TypeWait, with("duration", "10s"), named("slow"), optional)
	w := start(t, workflow(wait), declare(def), `{}`)
	w.step(w.missed("w", execution.ClassTaskTimeout))
	require.Equal(t, w.now.Add(11*time.Second), w.at("w").VisibleAt)
	require.Equal(t, w.now.Add(5*time.Second), w.at("w").AttBy)
	w.step(w.missed("w", execution.ClassTaskTimeout))
	w.ended(execution.Completed, "")
	require.True(t, w.row("w").Absorbed)
	require.True(t, w.row("w").Exhausted)
}

func TestJoinDeadline(t *testing.T) {
	t.Parallel()
	def := plain("gather", func(d *schema.TaskDefinition) { d.Timeout = 5000 })
	limited := func(t *schema.Task) { t.Definition = "gather" }
	forked := func(j *schema.Task) *schema.Workflow {
		limited(j)
		return workflow(fork("f", seq(simple("a")), seq(simple("b"))), j, simple("z"))
	}
	w := start(t, forked(join("j")), declare(plain("work"), def), `{}`)
	at := w.at("j")
	require.Equal(t, execution.WhyOperatorDeadline, at.Why)
	require.Equal(t, t0.Add(5*time.Second), at.AttBy)
	w.step(w.completed("a", ""), w.completed("b", ""))
	require.Equal(t, []string{"z"}, w.openRefs(), "the timer goes with the join")

	w = start(t, forked(join("j")), declare(plain("work"), def), `{}`)
	w.step(w.missed("j", execution.ClassTaskTimeout))
	w.ended(execution.TimedOut, execution.CauseTaskTimedOut)
	require.Equal(t, "j", w.closed.FailedRef)
	require.Equal(t, execution.Canceled, w.row("a").Status)

	j := join("j")
	optional(j)
	w = start(t, forked(j), declare(plain("work"), def), `{}`)
	w.step(w.missed("j", execution.ClassTaskTimeout))
	require.Equal(t, []string{"a", "b", "z"}, w.openRefs(), "absorbed: the flow goes on while the branches run")
	w.step(w.completed("a", ""), w.completed("z", ""))
	require.Nil(t, w.closed)
	w.step(w.completed("b", ""))
	w.ended(execution.Completed, "")
}

func TestJoinWaitsForItsDelay(t *testing.T) {
	t.Parallel()
	j := join("j")
	j.StartDelay = 3000
	w := start(t, workflow(fork("f", seq(simple("a"))), j), declare(plain("work")), `{}`)
	w.step(w.completed("a", ""))
	require.Equal(t, []string{"j"}, w.openRefs())
	w.step(w.elapsed("j"))
	w.ended(execution.Completed, "")
}

func TestExplicitJoin(t *testing.T) {
	t.Parallel()
	// The join names b, which runs; c, whose case is not taken; and the head of the case that is.
	s := choice("s", "x", map[string][]*schema.Task{"x": seq(simple("x")), "y": seq(simple("c0"), simple("c"))})
	w := start(t, workflow(fork("f", seq(simple("a"), simple("b")), seq(s, simple("slow"))), join("j", "b", "c", "x"), simple("z", with("in", "${j.output}"))),
		declare(plain("work")), `{}`)
	require.EqualValues(t, 2, w.scopes[1].Pending, "c can no longer run")
	w.step(w.completed("x", `{"x":1}`))
	w.step(w.completed("a", ""))
	require.False(t, w.has("j"))
	w.step(w.completed("b", ""))
	require.JSONEq(t, `{"b":{},"c":null,"x":{"x":1}}`, string(w.row("j").Output))
	require.Equal(t, []string{"slow", "z"}, w.openRefs())
	w.step(w.completed("z", `{"z":1}`))
	require.Nil(t, w.closed)
	w.step(w.completed("slow", ""))
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"z":1}`, string(w.closed.Output), "output of the last task of the root's sequence")
}

func TestSiblingOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	outputs := map[string]bool{}
	for _, order := range [][]string{{"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"c", "b", "a"}} {
		for together := 1; together <= 3; together++ {
			w := start(t, workflow(fork("f", seq(simple("a")), seq(simple("b")), seq(simple("c"))), join("j")), declare(plain("work")), `{}`)
			var facts []execution.Fact
			for _, ref := range order {
				facts = append(facts, w.completed(ref, `{"r":"`+ref+`"}`))
			}
			for len(facts) > 0 {
				n := min(together, len(facts))
				w.step(facts[:n]...)
				facts = facts[n:]
			}
			w.ended(execution.Completed, "")
			outputs[string(w.closed.Output)] = true
		}
	}
	require.Len(t, outputs, 1)
}

func TestSetVariable(t *testing.T) {
	t.Parallel()
	wf := workflow(
		task("one", schema.TypeSetVariable, with("n", "${workflow.input.n}"), with("list", []any{"a", "${workflow.variables.first}"})),
		simple("a", with("n", "${workflow.variables.n}"), with("all", "${workflow.variables}"), with("own", "${one.input.n}")),
	)
	wf.Variables = map[string]schema.Value{"first": "${workflow.input.n}", "kept": json.Number("1.50")}
	w := start(t, wf, declare(plain("work")), `{"n":7}`)
	require.JSONEq(t, `{"n":7,"all":{"n":7,"list":["a",7],"first":7,"kept":1.50},"own":7}`, string(w.inputs[w.no("a")]))
	require.Equal(t, "1.50", string(w.vars["kept"]), "digits are kept")
	require.JSONEq(t, `{"n":7,"list":["a",7]}`, string(w.row("one").Output))
}

func TestVariablesHaveALimitTogether(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 200<<10)
	wf := workflow(
		task("one", schema.TypeSetVariable, with("a", "${workflow.input.big}")),
		task("two", schema.TypeSetVariable, with("b", "${workflow.input.big}"), optional),
		task("three", schema.TypeSetVariable, with("a", "small"), with("b", "${workflow.input.big}")),
		simple("a", with("b", "${workflow.variables.b}")),
	)
	w := start(t, wf, declare(plain("work")), `{"big":"`+big+`"}`)
	require.Equal(t, execution.CauseOutputTooLarge, w.row("two").Cause)
	require.Contains(t, w.row("two").Reason, "256 KiB")
	require.Equal(t, execution.Completed, w.row("three").Status, "what is replaced does not count")
	require.Equal(t, []string{"a"}, w.openRefs())

	wf = workflow(simple("a"))
	wf.Variables = map[string]schema.Value{"a": "${workflow.input.big}", "b": "${workflow.input.big}"}
	w = start(t, wf, declare(plain("work")), `{"big":"`+big+`"}`)
	w.ended(execution.Failed, execution.CauseOutputTooLarge)
}

func TestInputTooLarge(t *testing.T) {
	t.Parallel()
	half := `{"big":"` + strings.Repeat("x", 4<<20) + `"}`
	w := start(t, workflow(simple("a", with("x", "${workflow.input.big}"), with("y", "${workflow.input.big}"))), declare(plain("work")), half)
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseInputInvalid, w.row("a").Cause)

	wf := workflow(task("w", schema.TypeWait, with("duration", json.Number("0"))))
	wf.OutputParameters = map[string]schema.Value{"x": "${workflow.input.big}", "y": "${workflow.input.big}"}
	w = start(t, wf, declare(), half)
	w.ended(execution.Failed, execution.CauseOutputTooLarge)
}

func TestOutputParameters(t *testing.T) {
	t.Parallel()
	wf := workflow(simple("a"), choice("s", "no", map[string][]*schema.Task{"yes": seq(simple("x"))}))
	wf.OutputParameters = map[string]schema.Value{
		"a": "${a.output.v}", "x": "${x.output}", "id": "${workflow.executionId}", "text": "n=${a.output.v}", "name": "${workflow.name}",
		"revision": "${workflow.revision}", "version": "${workflow.version}", "status": "${x.status}", "own": "${workflow.output}",
	}
	w := start(t, wf, declare(plain("work")), `{}`)
	w.step(w.completed("a", `{"v":3}`))
	w.ended(execution.Completed, "")
	require.JSONEq(t, `{"a":3,"x":null,"id":"0198c7a0-0000-7000-8000-000000000001","text":"n=3","name":"orders","revision":3,"version":null,
		"status":"SKIPPED","own":null}`, string(w.closed.Output))
}

func TestStartDelay(t *testing.T) {
	t.Parallel()
	late := func(t *schema.Task) { t.StartDelay = 5000 }
	def := plain("work", func(d *schema.TaskDefinition) { d.Timeout = 1000 })
	w := start(t, workflow(simple("a", late), task("s", schema.TypeSetVariable, with("x", "1"), late), simple("b")), declare(def), `{}`)
	at := w.at("a")
	require.Equal(t, execution.WhyStartDelay, at.Why)
	require.Equal(t, t0.Add(5*time.Second), at.VisibleAt)
	require.Equal(t, t0.Add(6*time.Second), at.AttBy, "deadlines run from when it is visible")
	w.step(w.completed("a", ""))
	require.Equal(t, execution.WhyWait, w.at("s").Why)
	require.Empty(t, w.vars)
	w.step(w.elapsed("s"))
	require.Equal(t, []string{"b"}, w.openRefs())
	require.NotEmpty(t, w.vars)
}

func TestSixtyFourRoundsThenAMark(t *testing.T) {
	t.Parallel()
	const chain = 200
	var tasks []*schema.Task
	for i := range chain {
		tasks = append(tasks, task(fmt.Sprintf("v%d", i), schema.TypeSetVariable, with("n", json.Number(strconv.Itoa(i)))))
	}
	w := start(t, workflow(tasks...), declare(), `{}`)
	evaluations := 1
	for w.closed == nil {
		require.Len(t, w.marks, 1)
		require.LessOrEqual(t, len(w.last.Ended), maxRounds)
		no := w.marks[0]
		w.marks = nil
		w.step(execution.EvaluationContinued{TaskNo: no})
		evaluations++
	}
	w.ended(execution.Completed, "")
	require.Equal(t, (chain+maxRounds-1)/maxRounds, evaluations)
	require.Len(t, w.rows, chain)
}

func TestWideForkIsScheduledInChunks(t *testing.T) {
	t.Parallel()
	const width = 1000
	var branches [][]*schema.Task
	for i := range width {
		branches = append(branches, seq(simple(fmt.Sprintf("t%d", i))))
	}
	w := start(t, workflow(fork("f", branches...), join("j", "t0"), simple("z")), declare(plain("work")), `{}`)
	require.Len(t, w.open, maxFan)
	require.EqualValues(t, maxFan, w.scopes[1].Cursor)
	w.step(w.completed("t0", ""))
	require.True(t, w.has("j"), "the join need not wait for what is not scheduled yet")
	w.settle()
	require.Len(t, w.open, width-1+1)
	require.EqualValues(t, width, w.scopes[1].Cursor)
	w.step(w.completed("z", ""))
	for i := 1; i < width; i++ {
		w.step(w.completed(fmt.Sprintf("t%d", i), ""))
	}
	w.ended(execution.Completed, "")
}

func TestQueues(t *testing.T) {
	t.Parallel()
	defs := declare(plain("call"))
	defs.targets[schema.Ref{Namespace: "default", Name: "billing"}] = execution.TargetRef{NS: 1, ID: 9}
	defs.targets[schema.Ref{Namespace: "shared", Name: "billing"}] = execution.TargetRef{NS: 4, ID: 2}
	for _, v := range []struct {
		task *schema.Task
		want execution.QueueKey
	}{
		{task("h", schema.TypeHTTP, with("target", "billing"), with("path", "/x")), execution.QueueKey{Name: "_nf.HTTP", TargetNS: 1, TargetID: 9}},
		{task("h", schema.TypeHTTP, named("call"), with("target", "shared/billing")), execution.QueueKey{Name: "_nf.HTTP.call", DefID: 1, TargetNS: 4, TargetID: 2}},
		{task("h", schema.TypeGRPC, with("target", "gone")), execution.QueueKey{Name: "_nf.GRPC"}},
		{task("h", schema.TypeHTTP, with("uri", "https://API.example.com/x?y")), execution.QueueKey{Name: "_nf.HTTP", Shard: Shard("https://api.example.com:443")}},
		{task("h", schema.TypeHTTP, with("uri", "not a uri")), execution.QueueKey{Name: "_nf.HTTP"}},
	} {
		v.want.NS, v.want.System = 1, true
		w := start(t, workflow(v.task), defs, `{}`)
		require.Equal(t, v.want, w.queues[1])
	}
}

func TestShard(t *testing.T) {
	t.Parallel()
	for uri, host := range map[string]string{
		"http://a.example/x": "a.example:80", "HTTPS://A.Example": "a.example:443", "https://u:p@h:8443/?q#f": "h:8443",
		"http://[::1]:9/": "[::1]:9", "http://[::1]/": "[::1]:80", "http://h:080/": "h:80", "https://h\\@evil/": "h:443",
		"ftp://h/": "", "//h/": "", "": "", "https://": "", "https://@:1/": "",
	} {
		require.Equal(t, host, hostPort(uri), uri)
		require.GreaterOrEqual(t, Shard(uri), int16(0))
		require.Less(t, Shard(uri), int16(64))
	}
	require.Equal(t, Shard("https://h/a"), Shard("https://h:443/b"))
}

func TestPathOfACallIsOneSegmentAnExpression(t *testing.T) {
	t.Parallel()
	call := func(path string) *schema.Task {
		return task("h", schema.TypeHTTP, with("target", "billing"), with("path", path))
	}
	w := start(t, workflow(call("/orders/${workflow.input.id}/items")), declare(), `{"id":"a/b?c"}`)
	require.JSONEq(t, `{"target":"billing","path":"/orders/a%2Fb%3Fc/items"}`, string(w.inputs[1]))
	w = start(t, workflow(call("${workflow.input.id}")), declare(), `{"id":5}`)
	require.JSONEq(t, `{"target":"billing","path":"5"}`, string(w.inputs[1]))
	for _, bad := range []string{`{"id":".."}`, `{"id":"."}`, `{"id":""}`, `{}`} {
		w = start(t, workflow(call("/orders/${workflow.input.id}")), declare(), bad)
		w.ended(execution.Failed, execution.CauseTaskFailed)
		require.Equal(t, execution.CauseInvalidRequest, w.row("h").Cause)
	}
}

func TestAnExpressionMayNotNameASecret(t *testing.T) {
	t.Parallel()
	call := task("h", schema.TypeHTTP, with("target", "billing"), with("headers", map[string]any{
		"x": "${workflow.input.x}", "y": map[string]any{"secretRef": map[string]any{"name": "own", "key": "k"}},
	}))
	w := start(t, workflow(call), declare(), `{"x":"fine"}`)
	require.JSONEq(t, `{"target":"billing","headers":{"x":"fine","y":{"secretRef":{"name":"own","key":"k"}}}}`, string(w.inputs[1]))
	w = start(t, workflow(call), declare(), `{"x":{"secretRef":{"name":"other","key":"k"}}}`)
	w.ended(execution.Failed, execution.CauseTaskFailed)
	require.Equal(t, execution.CauseInputInvalid, w.row("h").Cause)
}

func TestFailedSwitchThatIsOptionalTakesNoBranch(t *testing.T) {
	t.Parallel()
	s := choice("s", "a", map[string][]*schema.Task{"a": seq(simple("x"))}, simple("d"))
	s.InputParameters["one"], s.InputParameters["two"] = "${workflow.input.big}", "${workflow.input.big}"
	s.Optional = true
	w := start(t, workflow(s, simple("z")), declare(plain("work")), `{"big":"`+strings.Repeat("x", 4<<20)+`"}`)
	require.True(t, w.row("s").Absorbed)
	require.Equal(t, execution.Skipped, w.row("x").Status)
	require.Equal(t, execution.Skipped, w.row("d").Status)
	require.Equal(t, []string{"z"}, w.openRefs())
}
