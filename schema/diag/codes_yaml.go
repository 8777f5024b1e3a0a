package diag

// yamlCodes are the findings about bytes and YAML.
var yamlCodes = []Explanation{
	{
		Code: "NF1001", Title: "file cannot be read", Rule: "file-unreadable", Level: Error,
		Text: "The file exists but reading it ended with an error. Nothing is decided from a source that could only be read in part: mend access to the file, or take it out of the roots.",
	},
	{
		Code: "NF1002", Title: "YAML syntax error", Rule: "yaml-syntax", Level: Error,
		Text: "The text is not YAML. The place is where the reader could not go on; the cause often stands on the line above: a missing colon, a quote or bracket that is not closed, or a line that is indented by one blank too few.",
		Bad: `metadata: {name: erp
spec: {permits: 4}`,
		Good: `metadata: {name: erp}
spec: {permits: 4}`,
	},
	{
		Code: "NF1003", Title: "duplicate key", Rule: "duplicate-key", Level: Error,
		Text: "A key may stand once in a map. Other readers silently take the last one; nf refuses, since it cannot know which one was meant. Remove one of the two.",
		Bad: `permits: 4
permits: 40`,
		Good: "permits: 40",
	},
	{
		Code: "NF1004", Title: "key is not text", Rule: "key-not-text", Level: Error,
		Text: "Keys are text. A plain number, boolean or null as a key must be quoted.",
		Bad: `decisionCases:
  true: []`,
		Good: `decisionCases:
  "true": []`,
	},
	{
		Code: "NF1005", Title: "unknown tag", Rule: "unknown-tag", Level: Error,
		Text: "Tags (`!name`) have no meaning in a manifest and would be dropped in silence. Remove the tag.",
		Bad:  "permits: !big 4",
		Good: "permits: 4",
	},
	{
		Code: "NF1006", Title: "ambiguous boolean word", Rule: "ambiguous-boolean", Level: Error,
		Text: "yes, no, on, off, y and n are booleans for some readers and text for others. Write true or false, or put the word in quotes.",
		Bad:  "optional: yes",
		Good: "optional: true",
	},
	{
		Code: "NF1007", Title: "ambiguous number", Rule: "ambiguous-number", Level: Error,
		Text: "A number with a leading zero, an underscore, colons or 0b means different things to different readers. Write the plain decimal number, or put it in quotes if it is text.",
		Bad:  "permits: 010",
		Good: "permits: 10",
	},
	{
		Code: "NF1008", Title: "integer beyond 64 bits", Rule: "integer-too-large", Level: Error,
		Text: "Whole numbers are kept exactly up to 64 bits. A larger one would lose digits; write it as text.",
		Bad:  "variables: {n: 18446744073709551616}",
		Good: `variables: {n: "18446744073709551616"}`,
	},
	{
		Code: "NF1009", Title: "not a number or infinity", Rule: "not-finite", Level: Error,
		Text: "`.nan` and `.inf` are no JSON numbers. Write a number, or leave the key out.",
		Bad:  "jitter: .nan",
		Good: "jitter: 0.2",
	},
	{
		Code: "NF1010", Title: "value missing", Rule: "value-missing", Level: Error,
		Text: "A key without a value, or null, stands where none may be. An absent key takes the default: remove the key, or write a value.",
		Bad:  "retryCount:",
		Good: "retryCount: 3",
	},
	{
		Code: "NF1011", Title: "bad encoding", Rule: "bad-encoding", Level: Error,
		Text: "Manifests are UTF-8 with LF or CRLF line ends. UTF-16, invalid UTF-8, NUL, line ends of CR alone, a byte order mark inside the file and bidirectional control characters are refused, since what people see would not be what is read.",
	},
	{
		Code: "NF1012", Title: "alias or node budget exceeded", Rule: "alias-budget", Level: Error,
		Text: "Anchors and aliases are allowed, but the document with all of them written out is larger than the budget. Write it with fewer aliases, or raise the limit that the finding names.",
	},
	{
		Code: "NF1013", Title: "nesting too deep", Rule: "nesting-too-deep", Level: Error,
		Text: "Maps and lists are nested deeper than the limit. Flatten the value, or split the workflow.",
	},
	{
		Code: "NF1014", Title: "value must be quoted", Rule: "value-unquoted", Level: Error,
		Text: "A plain value may not begin with *, &, @, %, a back-tick or {{: YAML gives those a meaning of their own. Put the value in quotes.",
		Bad:  "path: {{ id }}",
		Good: `path: "{{ id }}"`,
	},
	{
		Code: "NF1015", Title: "tab used for indentation", Rule: "tab-indentation", Level: Error,
		Text: "YAML is indented with blanks. Replace the tab.",
	},
	{
		Code: "NF1016", Title: "file too large", Rule: "file-too-large", Level: Error,
		Text: "The file has more bytes or documents than the limit. Split it.",
	},
	{
		Code: "NF1017", Title: "empty document", Rule: "empty-document", Level: Warning,
		Text: "A document between two `---` holds nothing. Remove one of the markers.",
		Bad: `---
---
kind: Semaphore`,
		Good: `---
kind: Semaphore`,
	},
	{
		Code: "NF1018", Title: "content after the end of a document", Rule: "content-after-end", Level: Error,
		Text: "Something follows the end marker `...`. Begin a new document with `---`, or remove it.",
	},
	{
		Code: "NF1019", Title: "text field holds an unquoted number, boolean or null", Rule: "text-unquoted", Level: Error,
		Text: "The field is text, and the plain value would be read as a number, boolean or null: 1.10 would become 1.1. Put it in quotes.",
		Bad:  "labels: {release: 1.10}",
		Good: `labels: {release: "1.10"}`,
	},
	{
		Code: "NF1020", Title: "bad anchor", Rule: "bad-anchor", Level: Error,
		Text: "An alias names an anchor that is not defined above it, an anchor is defined twice, or it contains itself. Give every anchor a name of its own, before its first use.",
	},
	{
		Code: "NF1021", Title: "bad merge key", Rule: "bad-merge", Level: Error,
		Text: "`<<` takes a map, or a list of maps, once in a map and without quotes. Merge several with a list.",
		Bad: `one: &one {retryCount: 1}
two: &two {jitter: 0}
spec:
  <<: *one
  <<: *two`,
		Good: `one: &one {retryCount: 1}
two: &two {jitter: 0}
spec:
  <<: [*one, *two]`,
	},
}
