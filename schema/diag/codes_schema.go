package diag

// schemaCodes are the findings of the schemas.
var schemaCodes = []Explanation{
	{
		Code: "NF2001", Title: "not an nf manifest", Rule: "not-a-manifest", Level: Error,
		Text: "Every YAML and JSON file under the roots is a manifest with `apiVersion` and `kind`; skipping others in silence would hide a misspelt kind. Move the file elsewhere, begin its name with `_`, or list it in `.nfignore`.",
		Bad:  "permits: 4",
		Good: `apiVersion: nf/v1
kind: Semaphore
metadata: {name: erp}
spec: {permits: 4}`,
	},
	{
		Code: "NF2002", Title: "unknown apiVersion", Rule: "unknown-api-version", Level: Error,
		Text: "This nf reads manifests of `nf/v1`.",
		Bad:  "apiVersion: v1",
		Good: "apiVersion: nf/v1",
	},
	{
		Code: "NF2003", Title: "unknown kind", Rule: "unknown-kind", Level: Error,
		Text: "This nf does not know the kind. Kinds are written in the singular, with a capital letter.",
		Bad:  "kind: Workflows",
		Good: "kind: Workflow",
	},
	{
		Code: "NF2101", Title: "unknown key", Rule: "unknown-key", Level: Error,
		Text: "The key has no meaning at this place. Nothing is accepted that is not enforced, so a misspelt setting cannot pass unseen. Correct the spelling or remove the key.",
		Bad:  "retryDelay: 2",
		Good: "retryDelaySeconds: 2",
	},
	{
		Code: "NF2102", Title: "required key missing", Rule: "required-key-missing", Level: Error,
		Text: "The object cannot work without this key.",
		Bad:  "spec: {}",
		Good: "spec: {permits: 4}",
	},
	{
		Code: "NF2103", Title: "wrong type", Rule: "wrong-type", Level: Error,
		Text: "The value has another JSON type than the field wants.",
		Bad:  `retryCount: "3"`,
		Good: "retryCount: 3",
	},
	{
		Code: "NF2104", Title: "value out of range", Rule: "value-out-of-range", Level: Error,
		Text: "The value is below the least or above the greatest that the field takes. Durations end at 366 days (31622400), retry delays at 24 hours (86400), a long poll at 30 seconds.",
		Bad:  "retryDelaySeconds: 90000",
		Good: "retryDelaySeconds: 86400",
	},
	{
		Code: "NF2105", Title: "value not in the list", Rule: "value-not-in-list", Level: Error,
		Text: "The field takes one of a closed list of words, spelt exactly like that.",
		Bad:  "retryLogic: EXPONENTIAL",
		Good: "retryLogic: EXPONENTIAL_BACKOFF",
	},
	{
		Code: "NF2106", Title: "bad name", Rule: "bad-name", Level: Error,
		Text: "Names begin with a letter or `_` and go on with letters, digits, `_`, `.` and `-`, at most 255. A taskReferenceName has no dot, since dots separate the steps of an expression. Names that begin with `_nf` are reserved. A reference is `name` or `namespace/name`.",
		Bad:  "name: my task",
		Good: "name: my-task",
	},
	{
		Code: "NF2107", Title: "bad format", Rule: "bad-format", Level: Error,
		Text: "The text is not written the way the field wants it: a URI, a host and port, a time or a duration.",
		Bad:  "baseUri: api.example.com",
		Good: "baseUri: https://api.example.com",
	},
	{
		Code: "NF2108", Title: "keys that exclude each other", Rule: "keys-exclude", Level: Error,
		Text: "Only one of these keys may stand here, or this key has no meaning beside another one.",
		Bad: `uri: https://example.com
target: erp`,
		Good: `target: erp
path: /orders`,
	},
	{
		Code: "NF2109", Title: "key that needs another key", Rule: "key-needs-key", Level: Error,
		Text: "The key only has a meaning beside another one.",
		Bad:  "path: /orders",
		Good: `target: erp
path: /orders`,
	},
	{
		Code: "NF2110", Title: "duplicate item in a set", Rule: "duplicate-item", Level: Error,
		Text: "The list is a set; an item that stands twice would count once. Remove one.",
		Bad:  "usableFrom: [a, a]",
		Good: "usableFrom: [a]",
	},
	{
		Code: "NF2111", Title: "too many items", Rule: "too-many-items", Level: Error,
		Text: "The list, map or workflow has more items than the limit. Split it.",
	},
	{
		Code: "NF2112", Title: "cap of 0 or less", Rule: "cap-not-positive", Level: Error,
		Text: "A cap of 0 would stop all work for ever, and nobody means that by a number. Leave the key out for no limit.",
		Bad:  "concurrentExecLimit: 0",
		Good: "# no concurrentExecLimit",
	},
	{
		Code: "NF2113", Title: "embedded JSON Schema is invalid", Rule: "schema-invalid", Level: Error,
		Text: "An `inputSchema` or `outputSchema` is a JSON Schema 2020-12 that refers only to itself (`#…`): nf reads no file and no address to check a value. It is at most 64 KiB large, with at most 1,000 subschemas, and the schemas that meet at one value may unfold to at most 10,000.",
		Bad:  `inputSchema: {$ref: "https://example.com/order.json"}`,
		Good: "inputSchema: {type: object, required: [orderId]}",
	},
	{
		Code: "NF2114", Title: "unknown task type", Rule: "unknown-task-type", Level: Error,
		Text: "The type of a task is one of a closed list, spelt in capitals.",
		Bad:  "type: FORK",
		Good: "type: FORK_JOIN",
	},
}
