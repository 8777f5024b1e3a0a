package spec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
	"nf/schema/spec"
)

// shared is compiled once: it is safe for concurrent use, which the parallel tests show.
var shared = sync.OnceValues(spec.Compile)

func compile(t require.TestingT) *spec.Validator {
	v, err := shared()
	require.NoError(t, err)
	return v
}

func decode(t require.TestingT, text string) any {
	v, err := jsontext.Decode([]byte(text), jsontext.Limits{})
	require.NoError(t, err)
	return v
}

// document puts a spec into an envelope.
func document(t require.TestingT, kind schema.Kind, spec string) any {
	return decode(t, fmt.Sprintf(`{"apiVersion": "nf/v1", "kind": %q, "metadata": {"name": "x"}, "spec": %s}`, kind, spec))
}

// found writes findings as "CODE pointer", with "key " before a pointer to a key.
func found(list diag.List) []string {
	out := []string{}
	for _, d := range list {
		key := ""
		if d.AtKey {
			key = "key "
		}
		out = append(out, string(d.Code)+" "+key+d.Pointer)
	}
	return out
}

type row struct {
	spec string
	want []string
	hint string // part of the hint of the first finding
}

func check(t *testing.T, kind schema.Kind, rows map[string]row) {
	t.Helper()
	v := compile(t)
	for name, r := range rows {
		list := v.Validate(kind, document(t, kind, r.spec))
		require.Equal(t, r.want, found(list), name)
		if r.hint != "" {
			require.Contains(t, list[0].Hint, r.hint, name)
		}
		for _, d := range list {
			require.NotEmpty(t, d.Message)
			require.Equal(t, diag.Error, d.Level)
		}
	}
}

func TestTaskDefinition(t *testing.T) {
	t.Parallel()
	check(t, schema.KindTaskDefinition, map[string]row{
		"empty":             {spec: `{}`, want: []string{}},
		"all kinds of ints": {spec: `{"retryCount": 1e1, "pollTimeoutSeconds": 30.0, "concurrentExecLimit": 9223372036854775807}`, want: []string{}},
		"misspelt":          {spec: `{"retryDelay": 2}`, want: []string{"NF2101 key /spec/retryDelay"}, hint: `did you mean "retryDelaySeconds"?`},
		"misspelt letters":  {spec: `{"retryCuont": 2}`, want: []string{"NF2101 key /spec/retryCuont"}, hint: `did you mean "retryCount"?`},
		"other words":       {spec: `{"maxRetries": 2}`, want: []string{"NF2101 key /spec/maxRetries"}, hint: `did you mean "retryCount"?`},
		"later":             {spec: `{"preset": "STANDARD"}`, want: []string{"NF2101 key /spec/preset"}, hint: `comes in a later release`},
		"owner":             {spec: `{"ownerEmail": "a@b.c"}`, want: []string{"NF2101 key /spec/ownerEmail"}, hint: "labels"},
		"tags":              {spec: `{"tags": []}`, want: []string{"NF2101 key /spec/tags"}, hint: "labels"},
		"null":              {spec: `{"retryCount": null}`, want: []string{"NF1010 key /spec/retryCount"}, hint: "remove the key"},
		"null map":          {spec: `{"semaphores": null}`, want: []string{"NF1010 key /spec/semaphores"}},
		"text for a number": {spec: `{"retryCount": "3"}`, want: []string{"NF2103 /spec/retryCount"}, hint: "without quotes: 3"},
		"fraction":          {spec: `{"retryCount": 1.5}`, want: []string{"NF2103 /spec/retryCount"}},
		"duration as text":  {spec: `{"timeoutSeconds": "24h"}`, want: []string{"NF2103 /spec/timeoutSeconds"}, hint: "write 86400"},
		"duration in words": {spec: `{"timeoutSeconds": "2 days"}`, want: []string{"NF2103 /spec/timeoutSeconds"}, hint: "write 172800"},
		"number for text":   {spec: `{"nonRetryableErrors": [404]}`, want: []string{"NF1019 /spec/nonRetryableErrors/0"}, hint: `"404"`},
		"too fine":          {spec: `{"timeoutSeconds": 0.0001}`, want: []string{"NF2104 /spec/timeoutSeconds"}},
		"three decimals":    {spec: `{"timeoutSeconds": 4.351, "retryDelaySeconds": 0.001}`, want: []string{}},
		"negative":          {spec: `{"timeoutSeconds": -1}`, want: []string{"NF2104 /spec/timeoutSeconds"}},
		"heartbeat":         {spec: `{"heartbeatTimeout": 0.5}`, want: []string{"NF2104 /spec/heartbeatTimeout"}},
		"heartbeat 0":       {spec: `{"heartbeatTimeout": 0}`, want: []string{}},
		"cap of 0":          {spec: `{"concurrentExecLimit": 0}`, want: []string{"NF2112 /spec/concurrentExecLimit"}, hint: "leave it out"},
		"negative cap":      {spec: `{"concurrentExecLimit": -1}`, want: []string{"NF2112 /spec/concurrentExecLimit"}, hint: "leave it out"},
		"not in list":       {spec: `{"retryLogic": "EXPONENTIAL"}`, want: []string{"NF2105 /spec/retryLogic"}, hint: `did you mean "EXPONENTIAL_BACKOFF"?`},
		"case":              {spec: `{"timeoutPolicy": "retry"}`, want: []string{"NF2105 /spec/timeoutPolicy"}, hint: `did you mean "RETRY"?`},
		"FIXED with factor": {spec: `{"retryLogic": "FIXED", "backoffScaleFactor": 2}`, want: []string{"NF2108 key /spec/backoffScaleFactor"}},
		"FIXED":             {spec: `{"retryLogic": "FIXED"}`, want: []string{}},
		"bad ref":           {spec: `{"semaphores": ["a/b/c"]}`, want: []string{"NF2106 /spec/semaphores/0"}},
		"semaphore twice":   {spec: `{"semaphores": ["a", "b", "a"]}`, want: []string{"NF4010 /spec/semaphores/2"}},
		"not a list":        {spec: `{"semaphores": "a"}`, want: []string{"NF2103 /spec/semaphores"}, hint: `["a"]`},
		"too many":          {spec: `{"nonRetryableErrors": [` + strings.Repeat(`"a",`, 100) + `"b"]}`, want: []string{"NF2111 /spec/nonRetryableErrors"}},
		"empty text":        {spec: `{"nonRetryableErrors": [""]}`, want: []string{"NF2104 /spec/nonRetryableErrors/0"}},
		"schema outside":    {spec: `{"inputSchema": {"properties": {"a": {"$ref": "https://example.com/x"}}}}`, want: []string{"NF2113 /spec/inputSchema/properties/a/$ref"}},
		"schema invalid":    {spec: `{"outputSchema": {"type": "strng"}}`, want: []string{"NF2113 /spec/outputSchema/type"}},
		"several at once":   {spec: `{"retryCount": "x", "retryBudget": 2, "zzz": 1}`, want: []string{"NF2104 /spec/retryBudget", "NF2103 /spec/retryCount", "NF2101 key /spec/zzz"}},
	})
}

// BG-31: very large values name the maximum of their field.
func TestBG_31_LargeDurationsNameTheMaximum(t *testing.T) {
	t.Parallel()
	v := compile(t)
	for field, limit := range map[string]string{
		"retryDelaySeconds": "86400 (24 h)", "maxRetryDelaySeconds": "86400 (24 h)", "scheduleToStartTimeout": "31622400 (366 days)", "startToCloseTimeout": "31622400 (366 days)",
		"timeoutSeconds": "31622400 (366 days)", "totalTimeoutSeconds": "31622400 (366 days)", "heartbeatTimeout": "31622400 (366 days)",
		"responseTimeoutSeconds": "31622400 (366 days)", "pollTimeoutSeconds": "30",
	} {
		list := v.Validate(schema.KindTaskDefinition, document(t, schema.KindTaskDefinition, `{"`+field+`": 2147483648}`))
		require.Equal(t, []string{"NF2104 /spec/" + field}, found(list))
		require.Contains(t, list[0].Message, "the greatest value is "+limit)
	}
	for spec, at := range map[string]string{
		`{"timeoutSeconds": 2147483648, "tasks": [{"taskReferenceName": "a"}]}`:                                                     "/spec/timeoutSeconds",
		`{"tasks": [{"taskReferenceName": "a", "startDelaySeconds": 2147483648}]}`:                                                  "/spec/tasks/0/startDelaySeconds",
		`{"tasks": [{"taskReferenceName": "a", "type": "WAIT", "timeoutSeconds": 2147483648, "inputParameters": {"duration": 1}}]}`: "/spec/tasks/0/timeoutSeconds",
		`{"tasks": [{"taskReferenceName": "a", "type": "WAIT", "inputParameters": {"duration": 2147483648}}]}`:                      "/spec/tasks/0/inputParameters/duration",
	} {
		require.Equal(t, []string{"NF2104 " + at}, found(v.Validate(schema.KindWorkflow, document(t, schema.KindWorkflow, spec))))
	}
}

func tasks(task string) string { return `{"tasks": [` + task + `]}` }

func TestWorkflow(t *testing.T) {
	t.Parallel()
	check(t, schema.KindWorkflow, map[string]row{
		"least":            {spec: tasks(`{"taskReferenceName": "a", "name": "d"}`), want: []string{}},
		"no tasks":         {spec: `{}`, want: []string{"NF2102 key /spec"}},
		"empty tasks":      {spec: `{"tasks": []}`, want: []string{"NF2104 /spec/tasks"}},
		"timeoutPolicy":    {spec: `{"timeoutPolicy": "ALERT_ONLY", "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF4002 key /spec/timeoutPolicy"}, hint: "TIMED_OUT"},
		"restartable":      {spec: `{"restartable": true, "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2101 key /spec/restartable"}, hint: "run again"},
		"schemaVersion":    {spec: `{"schemaVersion": 2, "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2101 key /spec/schemaVersion"}, hint: "apiVersion"},
		"ownerEmail":       {spec: `{"ownerEmail": "x", "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2101 key /spec/ownerEmail"}, hint: "labels"},
		"tags":             {spec: `{"tags": [], "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2101 key /spec/tags"}, hint: "labels"},
		"inputParameters":  {spec: `{"inputParameters": [], "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2101 key /spec/inputParameters"}, hint: "inputSchema"},
		"version 0":        {spec: `{"version": 0, "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2104 /spec/version"}},
		"version text":     {spec: `{"version": "1", "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2103 /spec/version"}},
		"ref":              {spec: tasks(`{"ref": "a", "name": "d"}`), want: []string{"NF2102 key /spec/tasks/0", "NF2101 key /spec/tasks/0/ref"}},
		"dotted ref":       {spec: tasks(`{"taskReferenceName": "a.b"}`), want: []string{"NF2106 /spec/tasks/0/taskReferenceName"}},
		"root as ref":      {spec: tasks(`{"taskReferenceName": "workflow"}`), want: []string{"NF2106 /spec/tasks/0/taskReferenceName"}},
		"reserved":         {spec: tasks(`{"taskReferenceName": "_nfx"}`), want: []string{"NF2106 /spec/tasks/0/taskReferenceName"}},
		"retry field":      {spec: tasks(`{"taskReferenceName": "a", "retryDelaySeconds": 5}`), want: []string{"NF4001 key /spec/tasks/0/retryDelaySeconds"}, hint: "TaskDefinition"},
		"retryCount":       {spec: tasks(`{"taskReferenceName": "a", "retryCount": 5}`), want: []string{}},
		"misspelt":         {spec: tasks(`{"taskReferenceName": "a", "retryCuont": 5}`), want: []string{"NF2101 key /spec/tasks/0/retryCuont"}, hint: `did you mean "retryCount"?`},
		"definition's":     {spec: tasks(`{"taskReferenceName": "a", "semaphores": []}`), want: []string{"NF2101 key /spec/tasks/0/semaphores"}, hint: "TaskDefinition"},
		"uri on a task":    {spec: tasks(`{"taskReferenceName": "a", "type": "HTTP", "uri": "x", "inputParameters": {"uri": "x"}}`), want: []string{"NF2101 key /spec/tasks/0/uri"}, hint: "inputParameters of HTTP"},
		"other type's":     {spec: tasks(`{"taskReferenceName": "a", "joinOn": ["b"]}`), want: []string{"NF2101 key /spec/tasks/0/joinOn"}, hint: "JOIN"},
		"later":            {spec: tasks(`{"taskReferenceName": "a", "compensateWith": {}}`), want: []string{"NF2101 key /spec/tasks/0/compensateWith"}, hint: "later release"},
		"fork":             {spec: tasks(`{"taskReferenceName": "a", "type": "FORK"}`), want: []string{"NF2114 /spec/tasks/0/type"}, hint: `did you mean "FORK_JOIN"?`},
		"decision":         {spec: tasks(`{"taskReferenceName": "a", "type": "DECISION"}`), want: []string{"NF2114 /spec/tasks/0/type"}, hint: `did you mean "SWITCH"?`},
		"later type":       {spec: tasks(`{"taskReferenceName": "a", "type": "DO_WHILE"}`), want: []string{"NF2114 /spec/tasks/0/type"}, hint: "later release"},
		"later other":      {spec: tasks(`{"taskReferenceName": "a", "type": "SUB_WORKFLOW_START"}`), want: []string{"NF2114 /spec/tasks/0/type"}, hint: `did you mean "SUB_WORKFLOW"?`},
		"lower case":       {spec: tasks(`{"taskReferenceName": "a", "type": "http"}`), want: []string{"NF2114 /spec/tasks/0/type"}, hint: `did you mean "HTTP"?`},
		"nested":           {spec: tasks(`{"taskReferenceName": "s", "type": "SWITCH", "expression": "k", "decisionCases": {"a/b": [{"taskReferenceName": "x", "typ": "HTTP"}]}}`), want: []string{"NF2101 key /spec/tasks/0/decisionCases/a~1b/0/typ"}, hint: `did you mean "type"?`},
		"nested fork":      {spec: tasks(`{"taskReferenceName": "s", "type": "FORK_JOIN", "forkTasks": [[{"taskReferenceName": "x", "optional": "true"}], []]}`), want: []string{"NF2103 /spec/tasks/0/forkTasks/0/0/optional", "NF2104 /spec/tasks/0/forkTasks/1"}, hint: "without quotes: true"},
		"switch":           {spec: tasks(`{"taskReferenceName": "s", "type": "SWITCH"}`), want: []string{"NF2102 key /spec/tasks/0"}},
		"cel":              {spec: tasks(`{"taskReferenceName": "s", "type": "SWITCH", "expression": "k", "evaluatorType": "cel"}`), want: []string{"NF2105 /spec/tasks/0/evaluatorType"}, hint: "later release"},
		"retry of switch":  {spec: tasks(`{"taskReferenceName": "s", "type": "SWITCH", "expression": "k", "retryCount": 1}`), want: []string{"NF2101 key /spec/tasks/0/retryCount"}},
		"join input":       {spec: tasks(`{"taskReferenceName": "s", "type": "JOIN", "inputParameters": {"a": 1}}`), want: []string{"NF2101 key /spec/tasks/0/inputParameters/a"}, hint: "takes no input"},
		"joinOn":           {spec: tasks(`{"taskReferenceName": "s", "type": "JOIN", "joinOn": ["a", "a"]}`), want: []string{"NF2110 /spec/tasks/0/joinOn/1"}},
		"set nothing":      {spec: tasks(`{"taskReferenceName": "s", "type": "SET_VARIABLE", "inputParameters": {}}`), want: []string{"NF2104 /spec/tasks/0/inputParameters"}},
		"wait":             {spec: tasks(`{"taskReferenceName": "s", "type": "WAIT", "inputParameters": {"duration": "1h30m"}}`), want: []string{}},
		"wait for signal":  {spec: tasks(`{"taskReferenceName": "s", "type": "WAIT", "inputParameters": {}}`), want: []string{"NF2102 key /spec/tasks/0/inputParameters"}, hint: "later release"},
		"wait until":       {spec: tasks(`{"taskReferenceName": "s", "type": "WAIT", "inputParameters": {"duration": 1, "until": "x"}}`), want: []string{"NF2101 key /spec/tasks/0/inputParameters/until"}, hint: "later release"},
		"wait twice":       {spec: tasks(`{"taskReferenceName": "s", "type": "WAIT", "name": "d", "timeoutSeconds": 1, "inputParameters": {"duration": 1}}`), want: []string{"NF2108 key /spec/tasks/0/timeoutSeconds"}},
		"timeout of http":  {spec: tasks(`{"taskReferenceName": "s", "type": "HTTP", "timeoutSeconds": 1, "inputParameters": {"uri": "x"}}`), want: []string{"NF2101 key /spec/tasks/0/timeoutSeconds"}, hint: ""},
		"terminate":        {spec: tasks(`{"taskReferenceName": "s", "type": "TERMINATE", "inputParameters": {"terminationStatus": "${workflow.input.s}", "workflowOutput": {"a": null}}}`), want: []string{}},
		"terminate failed": {spec: tasks(`{"taskReferenceName": "s", "type": "TERMINATE", "inputParameters": {"terminationStatus": "FAILED", "workflowOutput": {}}}`), want: []string{"NF2108 key /spec/tasks/0/inputParameters/workflowOutput"}},
		"terminate other":  {spec: tasks(`{"taskReferenceName": "s", "type": "TERMINATE", "inputParameters": {"terminationStatus": "CANCELED"}}`), want: []string{"NF2105 /spec/tasks/0/inputParameters/terminationStatus"}},
		"free values":      {spec: `{"variables": {"n": null}, "outputParameters": {"a": [null]}, "tasks": [{"taskReferenceName": "a", "inputParameters": {"x": null}}]}`, want: []string{}},
		"task is no map":   {spec: `{"tasks": ["a"]}`, want: []string{"NF2103 /spec/tasks/0"}},
		"schema":           {spec: `{"inputSchema": {"requierd": ["a"]}, "tasks": [{"taskReferenceName": "a"}]}`, want: []string{"NF2113 /spec/inputSchema/requierd"}},
	})
}

func TestCallInput(t *testing.T) {
	t.Parallel()
	http := func(input string) string {
		return tasks(`{"taskReferenceName": "a", "type": "HTTP", "inputParameters": ` + input + `}`)
	}
	grpc := func(input string) string {
		return tasks(`{"taskReferenceName": "a", "type": "GRPC", "inputParameters": ` + input + `}`)
	}
	const at = "/spec/tasks/0/inputParameters"
	check(t, schema.KindWorkflow, map[string]row{
		"uri":             {spec: http(`{"uri": "https://x/${workflow.input.id}"}`), want: []string{}},
		"target":          {spec: http(`{"target": "ns/erp", "path": "/o/${workflow.input.id}"}`), want: []string{}},
		"everything":      {spec: http(`{"target": "erp", "method": "POST", "query": {"a": [1, "b", true], "c": "${x.output}"}, "headers": {"X-A": "b", "X-N": 1, "Authorization": {"secretRef": {"name": "psp", "key": "token", "prefix": "Bearer "}}}, "body": {"a": null}, "timeoutMs": 1000}`), want: []string{}},
		"templates":       {spec: http(`{"uri": "https://x", "method": "${workflow.input.m}", "query": "${workflow.input.q}", "timeoutMs": "${workflow.input.t}"}`), want: []string{}},
		"neither":         {spec: http(`{"method": "GET"}`), want: []string{"NF2102 key " + at}},
		"both":            {spec: http(`{"uri": "x", "target": "y"}`), want: []string{"NF2108 key " + at + "/target"}},
		"path alone":      {spec: http(`{"uri": "x", "path": "y"}`), want: []string{"NF2109 key " + at + "/path"}},
		"url":             {spec: http(`{"url": "x"}`), want: []string{"NF2102 key " + at, "NF2101 key " + at + "/url"}},
		"body of GET":     {spec: http(`{"uri": "x", "body": 1}`), want: []string{"NF2108 key " + at + "/body"}},
		"body of HEAD":    {spec: http(`{"uri": "x", "method": "HEAD", "body": 1}`), want: []string{"NF2108 key " + at + "/body"}},
		"bad method":      {spec: http(`{"uri": "x", "method": "POTS"}`), want: []string{"NF2105 " + at + "/method"}},
		"seconds":         {spec: http(`{"uri": "x", "timeoutMs": "30s"}`), want: []string{"NF2103 " + at + "/timeoutMs"}, hint: "write 30000"},
		"long":            {spec: http(`{"uri": "x", "timeoutMs": 600001}`), want: []string{"NF2104 " + at + "/timeoutMs"}},
		"header map":      {spec: http(`{"uri": "x", "headers": {"a": {"b": 1}}}`), want: []string{"NF2102 key " + at + "/headers/a", "NF2101 key " + at + "/headers/a/b"}},
		"header null":     {spec: http(`{"uri": "x", "headers": {"a": null}}`), want: []string{"NF1010 key " + at + "/headers/a"}},
		"header template": {spec: http(`{"uri": "x", "headers": "${workflow.input.h}"}`), want: []string{"NF2103 " + at + "/headers"}},
		"header name":     {spec: http(`{"uri": "x", "headers": {"Host": "a", "x-nf-y": "b", "a b": "c"}}`), want: []string{"NF2107 key " + at + "/headers/Host", "NF2107 key " + at + "/headers/a b", "NF2107 key " + at + "/headers/x-nf-y"}},
		"secret":          {spec: http(`{"target": "x", "headers": {"a": {"secretRef": {"name": "-x"}}}}`), want: []string{"NF2102 key " + at + "/headers/a/secretRef", "NF2106 " + at + "/headers/a/secretRef/name"}},
		"query map":       {spec: http(`{"uri": "x", "query": {"a": {"b": 1}}}`), want: []string{"NF2103 " + at + "/query/a"}},
		"no input":        {spec: tasks(`{"taskReferenceName": "a", "type": "HTTP"}`), want: []string{"NF2102 key /spec/tasks/0"}},
		"grpc":            {spec: grpc(`{"target": "erp", "method": "Charge", "request": {"a": 1}, "metadata": {"x": "y"}, "timeoutMs": 5}`), want: []string{}},
		"grpc whole":      {spec: grpc(`{"target": "erp", "method": "Charge", "request": "${workflow.input}"}`), want: []string{}},
		"grpc address":    {spec: grpc(`{"target": "erp", "method": "Charge", "address": "h:1"}`), want: []string{"NF2101 key " + at + "/address"}, hint: "Target"},
		"grpc method":     {spec: grpc(`{"target": "erp", "method": "billing.v1.Billing/Charge"}`), want: []string{"NF2106 " + at + "/method"}},
		"grpc metadata":   {spec: grpc(`{"target": "erp", "method": "Charge", "metadata": {"grpc-x": "y"}}`), want: []string{"NF2107 key " + at + "/metadata/grpc-x"}},
	})
}

// BG-22, BG-80: a call cannot be left open for somebody else to complete.
func TestBG_22_BG_80_AsyncComplete(t *testing.T) {
	t.Parallel()
	check(t, schema.KindWorkflow, map[string]row{
		"task":  {spec: tasks(`{"taskReferenceName": "a", "type": "HTTP", "asyncComplete": true, "inputParameters": {"uri": "x"}}`), want: []string{"NF2101 key /spec/tasks/0/asyncComplete"}, hint: "SIMPLE"},
		"input": {spec: tasks(`{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"uri": "x", "asyncComplete": true}}`), want: []string{"NF2101 key /spec/tasks/0/inputParameters/asyncComplete"}, hint: "SIMPLE"},
	})
}

// BG-115: a permissive branch is an optional task.
func TestBG_115_Permissive(t *testing.T) {
	t.Parallel()
	check(t, schema.KindWorkflow, map[string]row{
		"branch": {
			spec: tasks(`{"taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[{"taskReferenceName": "a", "permissive": true}]]}`),
			want: []string{"NF2101 key /spec/tasks/0/forkTasks/0/0/permissive"}, hint: `"optional"`,
		},
	})
}

func TestOtherKinds(t *testing.T) {
	t.Parallel()
	check(t, schema.KindSemaphore, map[string]row{
		"fine":     {spec: `{"permits": 4}`, want: []string{}},
		"missing":  {spec: `{}`, want: []string{"NF2102 key /spec"}},
		"misspelt": {spec: `{"permit": 4}`, want: []string{"NF2102 key /spec", "NF2101 key /spec/permit"}},
		"twice":    {spec: `{"permits": 4, "permitts": 4}`, want: []string{"NF2101 key /spec/permitts"}, hint: "there already"},
		"zero":     {spec: `{"permits": 0}`, want: []string{"NF2112 /spec/permits"}, hint: "leave it out"},
		"large":    {spec: `{"permits": 1000001}`, want: []string{"NF2104 /spec/permits"}},
	})
	check(t, schema.KindNamespace, map[string]row{
		"fine":  {spec: `{}`, want: []string{}},
		"later": {spec: `{"retentionDays": 30}`, want: []string{"NF2101 key /spec/retentionDays"}, hint: "later release"},
	})
	check(t, schema.KindProject, map[string]row{
		"fine":  {spec: `{"roots": ["a", "b"]}`, want: []string{}},
		"twice": {spec: `{"roots": ["a", "a"]}`, want: []string{"NF2110 /spec/roots/1"}},
		"later": {spec: `{"prune": {}}`, want: []string{"NF2101 key /spec/prune"}, hint: "later release"},
	})
	check(t, schema.KindTarget, map[string]row{
		"http":          {spec: `{"http": {"baseUri": "https://api.example.com:8443/v1"}}`, want: []string{}},
		"ipv6":          {spec: `{"http": {"baseUri": "http://[::1]:80"}}`, want: []string{}},
		"neither":       {spec: `{}`, want: []string{"NF2102 key /spec"}},
		"no scheme":     {spec: `{"http": {"baseUri": "api.example.com"}}`, want: []string{"NF2107 /spec/http/baseUri"}},
		"user":          {spec: `{"http": {"baseUri": "https://u:p@h"}}`, want: []string{"NF2107 /spec/http/baseUri"}},
		"query":         {spec: `{"http": {"baseUri": "https://h/?a=b"}}`, want: []string{"NF2107 /spec/http/baseUri"}},
		"template":      {spec: `{"http": {"baseUri": "https://${workflow.input.h}/"}}`, want: []string{"NF2107 /spec/http/baseUri"}},
		"port":          {spec: `{"http": {"baseUri": "https://h:99999"}}`, want: []string{"NF2107 /spec/http/baseUri"}},
		"baseUrl":       {spec: `{"http": {"baseUrl": "https://h"}}`, want: []string{"NF2102 key /spec/http", "NF2101 key /spec/http/baseUrl"}},
		"secret":        {spec: `{"http": {"baseUri": "https://h", "headers": {"a": {"secretRef": {"name": "n", "key": "k"}}}}}`, want: []string{}},
		"number header": {spec: `{"http": {"baseUri": "https://h", "headers": {"a": 1}}}`, want: []string{"NF1019 /spec/http/headers/a"}},
		"header name":   {spec: `{"http": {"baseUri": "https://h", "headers": {"Content-Length": "1"}}}`, want: []string{"NF2107 key /spec/http/headers/Content-Length"}},
		"usableFrom":    {spec: `{"usableFrom": "all", "http": {"baseUri": "https://h"}}`, want: []string{"NF2105 /spec/usableFrom"}, hint: "list of namespaces"},
		"usable list":   {spec: `{"usableFrom": ["a", "b"], "http": {"baseUri": "https://h"}}`, want: []string{}},
		"usable any":    {spec: `{"usableFrom": "*", "http": {"baseUri": "https://h"}}`, want: []string{}},
		"usable bad":    {spec: `{"usableFrom": ["*"], "http": {"baseUri": "https://h"}}`, want: []string{"NF2106 /spec/usableFrom/0"}},
		"grpc":          {spec: `{"grpc": {"address": "h:443", "service": "a.v1.B", "protoFiles": ["a.proto"], "includeDirs": ["p"], "tls": false}}`, want: []string{}},
		"grpc both":     {spec: `{"grpc": {"address": "h:443", "service": "a.v1.B", "protoFiles": ["a.proto"], "descriptorSet": "x"}}`, want: []string{"NF2108 key /spec/grpc/descriptorSet"}},
		"grpc neither":  {spec: `{"grpc": {"address": "h:443", "service": "a.v1.B"}}`, want: []string{"NF2102 key /spec/grpc"}},
		"grpc address":  {spec: `{"grpc": {"address": "https://h:443", "service": "a.v1.B", "descriptorSet": "x"}}`, want: []string{"NF2107 /spec/grpc/address"}},
		"grpc service":  {spec: `{"grpc": {"address": "h:443", "service": "a/B", "descriptorSet": "x"}}`, want: []string{"NF2106 /spec/grpc/service"}},
	})
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	v := compile(t)
	for text, want := range map[string][]string{
		`[]`:                                     {"NF2001 "},
		`null`:                                   {"NF2001 "},
		`{"permits":4}`:                          {"NF2001 "},
		`{"kind":"Semaphore"}`:                   {"NF2001 "},
		`{"apiVersion":"nf/v1"}`:                 {"NF2001 "},
		`{"apiVersion":"v1","kind":"Semaphore"}`: {"NF2002 /apiVersion"},
		`{"apiVersion":1,"kind":"Semaphore"}`:    {"NF2002 /apiVersion"},
		`{"apiVersion":"nf/v1","kind":"Semaphor"}`:                                                                           {"NF2003 /kind"},
		`{"apiVersion":"nf/v1","kind":"Schedule"}`:                                                                           {"NF2003 /kind"},
		`{"apiVersion":"nf/v1","kind":null}`:                                                                                 {"NF2003 /kind"},
		`{"apiVersion":"v2","kind":"x"}`:                                                                                     {"NF2002 /apiVersion", "NF2003 /kind"},
		`{"apiVersion":"nf/v1","kind":"Namespace"}`:                                                                          {"NF2102 key "},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a"}}`:                                                  {},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","namespace":"b"}}`:                                  {"NF2101 key /metadata/namespace"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"1a"}}`:                                                 {"NF2106 /metadata/name"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"_nf"}}`:                                                {"NF2106 /metadata/name"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":7}}`:                                                    {"NF1019 /metadata/name"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","labels":{"a.b":[1],"a/b":[2]}}}`:                   {"NF2103 /metadata/labels/a.b", "NF2103 /metadata/labels/a~1b"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","labels":{"release":1.10}}}`:                        {"NF1019 /metadata/labels/release"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","labels":{"` + strings.Repeat("k", 64) + `":"v"}}}`: {"NF2104 key /metadata/labels/" + strings.Repeat("k", 64)},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","labels":{"100%25":1}}}`:                            {"NF1019 /metadata/labels/100%25"},
		`{"apiVersion":"nf/v1","kind":"Namespace","metadata":{"name":"a","protect":true}}`:                                   {"NF2101 key /metadata/protect"},
		`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"a"}}`:                                                  {"NF2102 key "},
		`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"a"},"spec":null}`:                                      {"NF1010 key /spec"},
		`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"a"},"specc":{"permits":4}}`:                            {"NF2102 key ", "NF2101 key /specc"},
		`{"apiVersion":"nf/v1","kind":"Semaphore","metadata":{"name":"a"},"permits":4}`:                                      {"NF2102 key ", "NF2101 key /permits"},
	} {
		_, list := v.Check(decode(t, text))
		require.Equal(t, want, found(list), text)
	}
	_, list := v.Check(decode(t, `{"apiVersion":"nf/v1","kind":"Semaphor"}`))
	require.Equal(t, `did you mean "Semaphore"?`, list[0].Hint)
	_, list = v.Check(decode(t, `{"apiVersion":"nf/v1","kind":"Schedule"}`))
	require.Contains(t, list[0].Hint, "later release")
	kind, list := v.Check(document(t, schema.KindSemaphore, `{"permits": 1}`))
	require.Empty(t, list)
	require.Equal(t, schema.KindSemaphore, kind)
}

// The misspelling of a key is caught in every kind, with a suggestion.
func TestMisspeltInEveryKind(t *testing.T) {
	t.Parallel()
	v := compile(t)
	for kind, spec := range map[schema.Kind]string{
		schema.KindProject: `{"root": ["."]}`, schema.KindSemaphore: `{"permitts": 1}`, schema.KindTaskDefinition: `{"semaphore": []}`,
		schema.KindWorkflow: `{"task": [], "tasks": [{"taskReferenceName": "a", "optionl": true}]}`, schema.KindTarget: `{"htpp": {}, "http": {"baseUri": "http://x", "header": {}}}`,
	} {
		list := v.Validate(kind, document(t, kind, spec))
		require.NotEmpty(t, list, kind)
		suggestions := 0
		for _, d := range list {
			if strings.Contains(d.Hint, "did you mean") {
				suggestions++
			}
		}
		require.Positive(t, suggestions, kind)
	}
}

func TestSizeOfWorkflow(t *testing.T) {
	t.Parallel()
	v := compile(t)
	many := make([]string, 2001)
	for i := range many {
		many[i] = fmt.Sprintf(`{"taskReferenceName": "t%d"}`, i)
	}
	require.Equal(t, []string{"NF2111 /spec/tasks"}, found(v.Validate(schema.KindWorkflow, document(t, schema.KindWorkflow, tasks(strings.Join(many, ","))))))
	require.Empty(t, v.Validate(schema.KindWorkflow, document(t, schema.KindWorkflow, tasks(strings.Join(many[:2000], ",")))))
	nested := `{"taskReferenceName": "leaf"}`
	for i := range 15 {
		nested = fmt.Sprintf(`{"taskReferenceName": "s%d", "type": "SWITCH", "expression": "k", "defaultCase": [%s]}`, i, nested)
	}
	require.Empty(t, v.Validate(schema.KindWorkflow, document(t, schema.KindWorkflow, tasks(nested))))
	nested = `{"taskReferenceName": "s", "type": "SWITCH", "expression": "k", "defaultCase": [` + nested + `]}`
	list := v.Validate(schema.KindWorkflow, document(t, schema.KindWorkflow, tasks(nested)))
	require.Equal(t, []string{"NF1013 /spec/tasks" + strings.Repeat("/0/defaultCase", 16)}, found(list))
}

// The library panics about such numbers and values; the validator never does.
func TestNeverPanics(t *testing.T) {
	t.Parallel()
	v := compile(t)
	for _, n := range []string{"NaN", "Infinity", ".nan", "1e2000000", "-1e2000000", "1e-2000000", "", "0x10", strings.Repeat("9", 2000)} {
		doc := map[string]any{
			"apiVersion": "nf/v1", "kind": "TaskDefinition", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"retryCount": json.Number(n), "timeoutSeconds": json.Number(n), "retrycount": json.Number("1")},
		}
		require.Equal(t, []string{"NF2104 /spec/retryCount", "NF2101 key /spec/retrycount", "NF2104 /spec/timeoutSeconds"}, found(v.Validate(schema.KindTaskDefinition, doc)), n)
	}
	doc := map[string]any{"apiVersion": "nf/v1", "kind": "Semaphore", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"permits": 4.5}}
	require.Equal(t, []string{"NF2103 /spec/permits"}, found(v.Validate(schema.KindSemaphore, doc)))
	var deep any = "x"
	for range 300 {
		deep = []any{deep}
	}
	require.Equal(t, diag.Code("NF1013"), v.Validate(schema.KindSemaphore, deep)[0].Code)
	require.Equal(t, diag.Code("NF2003"), v.Validate("Queue", nil)[0].Code)
}

// One input gives the same findings in the same order, run after run.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	v := compile(t)
	doc := document(t, schema.KindWorkflow, `{"a": 1, "b": 2, "c": 3, "timeoutSeconds": "x", "tasks": [{"x": 1, "y": 2, "z": 3}, {"type": "HTTP", "inputParameters": {"p": 1, "q": 2, "method": 3}}]}`)
	want := v.Validate(schema.KindWorkflow, doc)
	require.Greater(t, len(want), 10)
	for range 50 {
		require.Equal(t, want, v.Validate(schema.KindWorkflow, doc))
	}
}

// Random changes to valid documents: no panic, and what is found stands where the document has something.
func TestMutations(t *testing.T) {
	t.Parallel()
	v := compile(t)
	seeds := []any{
		document(t, schema.KindTaskDefinition, `{"retryCount": 1, "semaphores": ["a"], "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#"}}}}`),
		document(t, schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "x", "headers": {"a": {"secretRef": {"name": "n", "key": "k"}}}}},
			{"taskReferenceName": "b", "type": "SWITCH", "expression": "k", "decisionCases": {"x": [{"taskReferenceName": "c"}]}}]}`),
		document(t, schema.KindTarget, `{"http": {"baseUri": "https://x", "headers": {"a": "b"}}, "usableFrom": ["a"]}`),
	}
	values := []any{nil, true, json.Number("0"), json.Number("1e500"), json.Number("2.5"), "", "x", "${a.output}", []any{}, []any{nil}, map[string]any{}, map[string]any{"type": "HTTP"}}
	rapid.Check(t, func(t *rapid.T) {
		doc := mutate(rapid.SampledFrom(seeds).Draw(t, "seed"), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "s"), 1)), values)
		kind, list := v.Check(doc)
		for _, d := range list {
			require.NotEmpty(t, d.Code)
		}
		if len(list) > 0 {
			return
		}
		// What the schemas accept, Go can decode.
		tree := doc.(map[string]any)
		meta, err := schema.DecodeMetadata(kind, tree["metadata"].(map[string]any))
		require.NoError(t, err)
		spec, _ := tree["spec"].(map[string]any)
		o, err := schema.Decode(kind, meta, spec)
		require.NoError(t, err)
		back, err := schema.DecodeCanonical(kind, meta, schema.Canonical(o))
		require.NoError(t, err)
		require.Equal(t, schema.Canonical(o), schema.Canonical(back))
	})
}

func mutate(v any, r *rand.Rand, values []any) any {
	if r.IntN(12) == 0 {
		return values[r.IntN(len(values))]
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if r.IntN(25) > 0 {
				out[key] = mutate(v[key], r, values)
			}
		}
		if r.IntN(25) == 0 {
			out["extra"] = values[r.IntN(len(values))]
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			out = append(out, mutate(item, r, values))
		}
		return out
	}
	return v
}
