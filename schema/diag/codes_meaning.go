package diag

// meaningCodes are the findings about references, meaning and lint.
var meaningCodes = []Explanation{
	{
		Code: "NF3001", Title: "declared twice", Rule: "declared-twice", Level: Error,
		Text: "Two documents declare one object: kind, namespace and name are equal. Where a file lies does not count. Rename one, or remove it.",
	},
	{
		Code: "NF3101", Title: "task definition does not exist", Rule: "task-definition-missing", Level: Error,
		Text: "A task names a TaskDefinition that no file declares, in the namespace of its workflow.",
		Bad: `type: SIMPLE
name: charg`,
		Good: `type: SIMPLE
name: charge`,
	},
	{
		Code: "NF3102", Title: "reference does not exist", Rule: "reference-missing", Level: Error,
		Text: "The named semaphore, target or workflow is declared nowhere. A semaphore that does not exist would protect nothing, so this is an error.",
		Bad:  "semaphores: [erpp]",
		Good: "semaphores: [erp]",
	},
	{
		Code: "NF3103", Title: "reference not allowed", Rule: "reference-not-allowed", Level: Error,
		Text: "Only semaphores and targets may be named across namespaces, and a target only from where its `usableFrom` allows.",
	},
	{
		Code: "NF3104", Title: "duplicate taskReferenceName", Rule: "duplicate-reference", Level: Error,
		Text: "A reference is unique in the whole workflow, nested tasks included, since expressions and people call a task by it.",
	},
	{
		Code: "NF3105", Title: "joinOn names no task of its fork", Rule: "join-on-unknown", Level: Error,
		Text: "`joinOn` lists tasks inside the fork that stands right before the join.",
	},
	{
		Code: "NF3106", Title: "fork without join", Rule: "fork-without-join", Level: Error,
		Text: "A FORK_JOIN is followed right away by its JOIN, and a JOIN stands right after its fork.",
	},
	{
		Code: "NF3107", Title: "definition on an immediate operator", Rule: "definition-on-operator", Level: Error,
		Text: "SWITCH, FORK_JOIN, SET_VARIABLE and TERMINATE are decided at once and never retried, so a task definition could not act on them. Remove `name`.",
	},
	{
		Code: "NF3108", Title: "task does not fit its place", Rule: "task-misplaced", Level: Error,
		Text: "A SIMPLE task is done by a worker and needs a task definition: set `name`.",
		Bad:  "type: SIMPLE",
		Good: `type: SIMPLE
name: charge`,
	},
	{
		Code: "NF3109", Title: "file of a target is unusable", Rule: "target-file-unusable", Level: Error,
		Text: "A file that a Target names is missing, does not compile, or lacks the service or method.",
	},
	{
		Code: "NF3110", Title: "streaming gRPC method", Rule: "streaming-method", Level: Error,
		Text: "Only unary methods can be called: one request, one answer.",
	},
	{
		Code: "NF3201", Title: "unknown root in an expression", Rule: "unknown-root", Level: Error,
		Text: "An expression begins with `workflow.input`, `workflow.variables`, `workflow.output`, `workflow.executionId`, `workflow.name`, `workflow.version`, `workflow.revision`, `workflow.correlationId`, or with a task reference and `.output`, `.input` or `.status`. There are no roots for the environment, secrets or targets. Write `$${` for a literal `${`.",
		Bad:  `body: "${HOME}"`,
		Good: `body: "$${HOME}"`,
	},
	{
		Code: "NF3202", Title: "expression syntax", Rule: "expression-syntax", Level: Error,
		Text: "Steps of a path are `.name`, `.0`, `['any key']`, `[0]` and `[-1]`; there are no blanks inside `${…}`. An expression is at most 4 KiB long. Write `$${` for a literal `${`.",
		Bad:  `x: "${workflow.input.a b}"`,
		Good: `x: "${workflow.input['a b']}"`,
	},
	{
		Code: "NF3203", Title: "expression names no task", Rule: "expression-task-missing", Level: Error,
		Text: "No task of the workflow has this reference.",
	},
	{
		Code: "NF3204", Title: "expression names a later task", Rule: "expression-task-later", Level: Error,
		Text: "The task runs later, or in a branch that is not joined before this place, so its output could not be there yet.",
	},
	{
		Code: "NF3205", Title: "value-param names no input key", Rule: "value-param-missing", Level: Error,
		Text: "The `expression` of a SWITCH is the name of a key of its own `inputParameters`.",
		Bad: `expression: kind
inputParameters: {type: "${workflow.input.type}"}`,
		Good: `expression: type
inputParameters: {type: "${workflow.input.type}"}`,
	},
	{
		Code: "NF3208", Title: "secret in a wrong place", Rule: "secret-misplaced", Level: Error,
		Text: "A `secretRef` may stand where a field is marked secretable: headers and metadata of a Target, and those of a call beside `target`, never beside a `uri`.",
	},
	{
		Code: "NF3301", Title: "literal does not parse", Rule: "literal-unparsable", Level: Error,
		Text: "A literal that would only fail when the task runs: a duration of WAIT, a URI.",
		Bad:  "duration: 5 fortnights",
		Good: "duration: 70 days",
	},
	{
		Code: "NF4001", Title: "retry field on a workflow task", Rule: "retry-field-on-task", Level: Error,
		Text: "Retry policy stands in the TaskDefinition, so that one place says how a task is retried. Only `retryCount` may be overridden in a workflow.",
		Bad:  "retryDelaySeconds: 5",
		Good: "# in the TaskDefinition: retryDelaySeconds: 5",
	},
	{
		Code: "NF4002", Title: "timeoutPolicy on a workflow", Rule: "timeout-policy-on-workflow", Level: Error,
		Text: "A workflow that misses its `timeoutSeconds` ends TIMED_OUT; there is nothing to choose. `timeoutPolicy` belongs to a TaskDefinition.",
		Bad:  "timeoutPolicy: ALERT_ONLY",
		Good: "timeoutSeconds: 3600",
	},
	{
		Code: "NF4003", Title: "field that cannot act", Rule: "field-cannot-act", Level: Error,
		Text: "A definition sets a field that cannot act on the type of the task that names it, such as a lease deadline for a task that is never leased.",
	},
	{
		Code: "NF4010", Title: "semaphore listed twice", Rule: "semaphore-twice", Level: Error,
		Text: "One task takes one permit of each semaphore; listing one twice would need more permits than it says.",
	},
}
