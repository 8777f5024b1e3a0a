// Package view turns findings, plans and executions into text for people and JSON for programs. It prints nothing itself.
//
// What comes from files, callers, workers or answers goes through Safe: no control character, and nothing that a CI log would take
// for a command, reaches a terminal (contract 5.4).
package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"nf/runtime/api"
	"nf/schema/diag"
)

// FormatVersion is the version of every JSON document of the command line. Fields are added within it, never removed.
const FormatVersion = api.FormatVersion

// ExitCodes is the help page of nf help exit-codes.
const ExitCodes = `Exit codes
  0    done; plan also when there are changes
  1    failed: I/O, database, time-out, not found, or a bug
  2    changes, only with --detailed-exitcode
  3    findings in the files; or start --wait on a run that did not complete
  4    refused: too many retirements, another owner, another environment, a limit, or the state of a run
  5    stale or busy: the plan is outdated, the generation has moved, the lock was not had in time
  64   usage: unknown command or flag, a bad value, settings that conflict
  130  interrupted (SIGINT)    143  terminated (SIGTERM)
If several apply, the first of 64, 1, 3, 4, 5, 2 is given.
`

// MinimalProject is what a folder without nf.yaml is told.
const MinimalProject = `A project is a folder with an nf.yaml. The smallest one:

    apiVersion: nf/v1
    kind: Project
    metadata:
      name: my-project
`

// JSON writes one document, indented, with a line end.
func JSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return safeJSON(b.String()), nil
}

// Safe makes a foreign text fit for a terminal and a CI log: one line, nothing that either would act on.
func Safe(text string) string {
	text = diag.Escape(text)
	for _, word := range []string{"##[", "##vso[", "##teamcity["} {
		text = strings.ReplaceAll(text, word, "#\u200b"+word[1:])
	}
	if strings.HasPrefix(text, "::") {
		text = ":\u200b" + text[1:]
	}
	return text
}

// SafeLines is Safe for a text of several lines: each line end stays.
func SafeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Safe(line)
	}
	return strings.Join(lines, "\n")
}

// Table lays rows out in columns under a head. Cells go through Safe.
func Table(head []string, rows [][]string) string {
	width := make([]int, len(head))
	all := append([][]string{head}, rows...)
	for r, row := range all {
		for i := range row {
			if r > 0 {
				row[i] = Safe(row[i])
			}
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Plural says "1 task", "2 tasks".
func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
