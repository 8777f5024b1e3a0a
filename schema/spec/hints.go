package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"nf/schema"
	"nf/schema/diag"
	"nf/schema/jsontext"
)

// This file is what authors probably meant. It never changes what is accepted.

// laterKinds are kinds of later releases.
var laterKinds = []string{
	"Schedule", "EventHandler", "Queue", "FlowLimit", "CircuitBreaker", "Moves", "Environment", "Patch", "Policy", "WorkflowTest",
}

// laterTypes are task types of later releases.
var laterTypes = []string{
	"HTTP_POLL", "WEBHOOK", "INLINE", "JSON_JQ_TRANSFORM", "WAIT_FOR_WEBHOOK", "HUMAN", "PULL_WORKFLOW_MESSAGES", "FORK_JOIN_DYNAMIC",
	"EXCLUSIVE_JOIN", "DO_WHILE", "DYNAMIC", "SUB_WORKFLOW", "START_WORKFLOW", "GET_WORKFLOW", "YIELD", "NOOP", "EVENT",
}

// meantTypes are names of task types that other engines use, or that people guess.
var meantTypes = map[string]string{
	"FORK": "FORK_JOIN", "PARALLEL": "FORK_JOIN", "DECISION": "SWITCH", "CONDITION": "SWITCH", "IF": "SWITCH", "SUB_WORKFLOW_START": "SUB_WORKFLOW",
	"SLEEP": "WAIT", "DELAY": "WAIT", "REST": "HTTP", "TASK": "SIMPLE", "WORKER": "SIMPLE", "USER_DEFINED": "SIMPLE", "SET": "SET_VARIABLE",
	"LAMBDA": "INLINE", "LOOP": "DO_WHILE", "JQ": "JSON_JQ_TRANSFORM", "FORK_DYNAMIC": "FORK_JOIN_DYNAMIC", "END": "TERMINATE",
}

const laterHint = "comes in a later release of nf; this one would not act on it"

func unknownTaskType(pointer, text string, known []string) diag.Diagnostic {
	d := diag.Newf("NF2114", pointer, "unknown task type %q", text)
	upper := strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(text))
	meant := meantTypes[upper]
	if slices.Contains(known, upper) {
		meant = upper
	}
	switch {
	case slices.Contains(laterTypes, upper):
		return d.WithHint(fmt.Sprintf("%s %s; this nf knows %s", upper, laterHint, strings.Join(known, ", ")))
	case slices.Contains(laterTypes, meant):
		return d.WithHint(fmt.Sprintf("did you mean %q? It %s", meant, laterHint))
	case meant != "":
		return d.WithHint(diag.Suggest([]string{meant})).Replacing(meant, false)
	}
	if near := diag.Nearest(upper, append(slices.Clone(known), laterTypes...)); len(near) > 0 {
		return d.WithHint(diag.Suggest(near))
	}
	return d.WithHint("task types are " + strings.Join(known, ", "))
}

// laterWords are words of closed lists that come later, by key=word.
var laterWords = map[string]string{
	"evaluatorType=cel":        "cel " + laterHint,
	"evaluatorType=javascript": "javascript " + laterHint,
	"evaluatorType=graaljs":    "javascript is called javascript and " + laterHint,
}

// missingHints say what to write for keys that people leave out.
var missingHints = map[string]string{
	"taskReferenceName": "a name that is unique in the workflow; expressions call the task by it",
	"metadata":          "write metadata: {name: …}",
	"duration":          "waiting for a signal comes in a later release; write duration, such as 90s",
}

// meant are misspellings too far from the right word for a spelling check, by key. A word counts where it is allowed.
var meant = map[string][]string{
	"url": {"uri", "baseUri"}, "address": {"uri"}, "endpoint": {"uri", "address"}, "href": {"uri"}, "baseurl": {"baseUri"}, "base": {"baseUri"}, "host": {"address"},
	"ref": {"taskReferenceName"}, "id": {"taskReferenceName", "name"}, "reference": {"taskReferenceName"}, "taskref": {"taskReferenceName"},
	"referencename": {"taskReferenceName"}, "taskname": {"name"}, "taskdefinition": {"name"}, "task": {"name"}, "definition": {"name"},
	"input": {"inputParameters"}, "inputs": {"inputParameters"}, "params": {"inputParameters"}, "parameters": {"inputParameters"}, "with": {"inputParameters"},
	"output": {"outputParameters", "workflowOutput"}, "outputs": {"outputParameters"}, "steps": {"tasks"}, "vars": {"variables"},
	"retries": {"retryCount"}, "maxretries": {"retryCount"}, "attempts": {"retryCount"}, "delay": {"retryDelaySeconds", "startDelaySeconds", "duration"},
	"backoff": {"retryLogic"}, "backoffrate": {"backoffScaleFactor"}, "multiplier": {"backoffScaleFactor"}, "maxdelay": {"maxRetryDelaySeconds"},
	"timeout": {"timeoutSeconds", "timeoutMs", "defaultTimeoutMs"}, "timeoutseconds": {"timeoutMs", "defaultTimeoutMs"}, "heartbeat": {"heartbeatTimeout"},
	"scheduletostarttimeoutseconds": {"scheduleToStartTimeout"}, "starttoclosetimeoutseconds": {"startToCloseTimeout"}, "responsetimeout": {"responseTimeoutSeconds"},
	"concurrency": {"concurrentExecLimit"}, "maxconcurrency": {"concurrentExecLimit"}, "limit": {"permits", "concurrentExecLimit"}, "permit": {"permits"}, "size": {"permits"},
	"verb": {"method"}, "params ": {"query"}, "querystring": {"query"}, "header": {"headers"}, "payload": {"body", "request"}, "json": {"body"}, "data": {"body", "request"},
	"message": {"request"}, "cases": {"decisionCases"}, "default": {"defaultCase"}, "branches": {"forkTasks"}, "condition": {"expression"}, "casevalueparam": {"expression"},
	"seconds": {"duration"}, "status": {"terminationStatus"}, "reason": {"terminationReason"}, "proto": {"protoFiles"}, "protos": {"protoFiles"},
	"folders": {"roots"}, "paths": {"roots"}, "namespaces": {"usableFrom", "namespace"}, "apiversion": {"apiVersion"}, "ns": {"namespace"}, "delayseconds": {"startDelaySeconds"},
}

// later are fields of later releases, by title of the place; "task" is every task.
var later = map[string][]string{
	"metadata":       {"protect", "abstract"},
	"Project spec":   {"lint", "imports", "limits", "prune", "drift", "apply", "settings", "schedules"},
	"Namespace spec": {"retentionDays", "quotas", "suspended"},
	"TaskDefinition spec": {
		"capMode", "preset", "maxAttempts", "initialDelayMs", "multiplier", "maxDelayMs", "jitterPercent", "onBudgetSpent",
		"rateLimitPerFrequency", "rateLimitFrequencySeconds", "secretOutputFields",
	},
	"Workflow spec":                  {"outputSchema", "failureWorkflow", "maskedFields", "maxConcurrentTasks", "maxConcurrentExecutions", "rateLimitConfig"},
	"Target spec":                    {"maxConcurrent", "rateLimitPerMinute", "rateLimitBurst", "retry"},
	"task":                           {"domain", "cacheConfig", "compensateWith", "compensateWhen", "flowKey", "ttlSeconds"},
	"a JOIN task":                    {"output"},
	"inputParameters of a WAIT task": {"until"},
}

// advice explains keys that nf leaves out on purpose, by place and key; "task" is every task.
var advice = map[string]map[string]string{
	"Workflow spec": {
		"timeoutPolicy":                 "a workflow that misses timeoutSeconds ends TIMED_OUT; remove it (a task's policy stands in its TaskDefinition)",
		"restartable":                   "remove it: every execution can be run again",
		"schemaVersion":                 "remove it: apiVersion says which format the manifest has",
		"inputParameters":               "remove it: inputSchema says what the input must be",
		"ownerEmail":                    "remove it: use metadata.labels",
		"tags":                          "remove it: use metadata.labels",
		"name":                          "the name stands in metadata",
		"description":                   "the description stands in metadata",
		"inputTemplate":                 "remove it: give variables their start values in variables",
		"ownerApp":                      "remove it: use metadata.labels",
		"workflowStatusListenerEnabled": "remove it: nf has no such listener",
	},
	"TaskDefinition spec": {
		"ownerEmail": "remove it: use metadata.labels", "tags": "remove it: use metadata.labels", "ownerApp": "remove it: use metadata.labels",
		"inputKeys": "remove it: inputSchema says what the input must be", "outputKeys": "remove it: outputSchema says what the output must be",
		"inputTemplate": "remove it: write inputParameters of the task in the workflow",
		"name":          "the name stands in metadata", "description": "the description stands in metadata",
	},
	"inputParameters of a GRPC task": {
		"address": "the address stands in the Target", "host": "the address stands in the Target", "port": "the address stands in the Target",
		"service": "the service stands in the Target", "uri": "name a Target with a grpc part",
	},
	"task": {
		"asyncComplete":         "the answer of the call ends the task; for work that somebody else completes later use a SIMPLE task",
		"permissive":            `did you mean "optional"? An optional task that fails does not end its siblings`,
		"timeoutPolicy":         "it stands in the TaskDefinition that name names",
		"loopOver":              "it belongs to DO_WHILE, which " + laterHint,
		"sink":                  "it belongs to EVENT, which " + laterHint,
		"workflowTaskType":      `did you mean "type"?`,
		"taskType":              `did you mean "type"?`,
		"startDelay":            `did you mean "startDelaySeconds"?`,
		"subWorkflowParam":      "it belongs to SUB_WORKFLOW, which " + laterHint,
		"dynamicForkTasksParam": "it belongs to FORK_JOIN_DYNAMIC, which " + laterHint,
		"caseExpression":        `did you mean "expression" beside "evaluatorType"?`,
	},
}

// retryFields may stand in a TaskDefinition only (X16).
var retryFields = []string{
	"retryLogic", "retryDelaySeconds", "backoffScaleFactor", "maxRetryDelaySeconds", "jitter", "retryBudget", "nonRetryableErrors",
	"retryDelay", "backoffRate", "maxRetryDelay", "retryPolicy", "retry",
}

// unknownKey is the finding about one key that a closed map does not have. free are the allowed keys that are not there yet.
func (t *translator) unknownKey(f fault, key string, allowed, free []string) diag.Diagnostic {
	pointer := f.pointer + "/" + jsontext.EscapePointer(key)
	title, _ := f.node["title"].(string)
	where := t.in(f)
	isTask := strings.HasSuffix(title, " task") && !strings.Contains(title, "inputParameters")
	switch {
	case title == "Workflow spec" && key == "timeoutPolicy":
		return diag.New("NF4002", pointer, "a workflow has no timeoutPolicy").WithHint(advice[title][key]).OnKey()
	case isTask && slices.Contains(retryFields, key):
		return diag.Newf("NF4001", pointer, "retry field %q may not stand on a task of a workflow", key).
			WithHint("set it in the TaskDefinition; only retryCount may be overridden here").OnKey()
	}
	d := diag.Newf("NF2101", pointer, "unknown key %q%s", key, where).OnKey()
	if hint, replacement := t.keyHint(title, key, isTask, allowed, free); hint != "" {
		d = d.WithHint(hint)
		if replacement != "" {
			d = d.Replacing(replacement, false)
		}
	}
	return d
}

func (t *translator) keyHint(title, key string, isTask bool, allowed, free []string) (hint, replacement string) {
	if hint := advice[title][key]; hint != "" {
		return hint, ""
	}
	if title == "metadata" && key == "namespace" {
		return "a " + string(t.kind) + " lives in no namespace", ""
	}
	if hint := advice["task"][key]; hint != "" && (isTask || key == "asyncComplete") {
		return hint, ""
	}
	if slices.Contains(later[title], key) || isTask && slices.Contains(later["task"], key) {
		return fmt.Sprintf("%q %s", key, laterHint), ""
	}
	for _, candidate := range meant[strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))] {
		if slices.Contains(free, candidate) {
			return diag.Suggest([]string{candidate}), candidate
		}
	}
	if near := diag.Nearest(key, free); len(near) > 0 {
		if len(near) == 1 {
			replacement = near[0]
		}
		return diag.Suggest(near), replacement
	}
	if near := diag.Nearest(key, allowed); len(near) > 0 {
		return fmt.Sprintf("%q is there already; remove this one", near[0]), ""
	}
	return t.elsewhere(title, key, isTask, allowed), ""
}

// elsewhere says where a key that is right in another place belongs.
func (t *translator) elsewhere(title, key string, isTask bool, allowed []string) string {
	file := t.docs[base+string(t.kind)+suffix]
	spec, _ := lookup(file, []string{"$defs", "spec", "properties"})
	inSpec, _ := spec.(map[string]any)
	switch _, ok := inSpec[key]; {
	case ok && title == string(t.kind):
		return fmt.Sprintf("%q belongs under spec", key)
	case ok && isTask:
		return fmt.Sprintf("%q belongs to the workflow", key)
	}
	definition, _ := lookup(t.docs[base+string(schema.KindTaskDefinition)+suffix], []string{"$defs", "spec", "properties", key})
	if isTask && definition != nil {
		return "it stands in the TaskDefinition that name names"
	}
	if owners := t.owners(key, isTask); len(owners) > 0 {
		return fmt.Sprintf("%q belongs to %s", key, strings.Join(owners, ", "))
	}
	if (strings.HasSuffix(title, " task") || strings.HasPrefix(title, "inputParameters")) && len(allowed) == 0 {
		return "this type takes no input"
	}
	if len(allowed) > 0 && len(allowed) <= 12 {
		return "keys here are " + strings.Join(allowed, ", ")
	}
	return ""
}

// owners lists the task types whose own fields hold a key.
func (t *translator) owners(key string, isTask bool) []string {
	if !isTask {
		return nil
	}
	var owners []string
	for _, taskType := range []schema.TaskType{schema.TypeSwitch, schema.TypeForkJoin, schema.TypeJoin, schema.TypeWait} {
		if _, ok := lookup(t.docs[base+string(schema.KindWorkflow)+suffix], []string{"$defs", string(taskType), "properties", key}); ok {
			owners = append(owners, string(taskType))
		}
	}
	for def, taskType := range map[string]string{"httpInput": "HTTP"} {
		if _, ok := lookup(t.docs[base+string(schema.KindWorkflow)+suffix], []string{"$defs", def, "properties", key}); ok {
			owners = append(owners, "inputParameters of "+taskType)
		}
	}
	return owners
}

// meantByText reads a text where another type is due: a quoted number or boolean, or a duration with units.
func meantByText(key, text string, wanted []string) (hint, literal string) {
	trimmed := strings.TrimSpace(text)
	number := slices.Contains(wanted, "number") || slices.Contains(wanted, "integer")
	switch {
	case number && jsontext.CheckNumber(trimmed, jsontext.Limits{}) == 0:
		return "write it without quotes: " + trimmed, trimmed
	case slices.Contains(wanted, "boolean") && (trimmed == "true" || trimmed == "false"):
		return "write it without quotes: " + trimmed, trimmed
	case number:
		d, ok := durationOf(trimmed)
		if ok && strings.HasSuffix(key, "Ms") {
			millis := strconv.FormatInt(d.Milliseconds(), 10)
			return "it is whole milliseconds: write " + millis, millis
		}
		if ok {
			seconds := string(schema.Seconds(schema.Millis(d.Milliseconds())))
			return "durations are seconds: write " + seconds, seconds
		}
	}
	return "", ""
}

// durationOf reads 24h, 1h30m, 2 days.
func durationOf(text string) (time.Duration, bool) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, true
	}
	number := strings.TrimRightFunc(text, unicode.IsLetter)
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || n < 0 || n > 1e6 {
		return 0, false
	}
	unit := map[string]time.Duration{
		"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour, "hour": time.Hour, "hours": time.Hour, "min": time.Minute, "mins": time.Minute,
		"minute": time.Minute, "minutes": time.Minute, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	}[strings.ToLower(text[len(number):])]
	return time.Duration(n * float64(unit)), unit > 0
}
