package cli

import (
	"slices"
	"strings"

	"nf/cmd/nf/internal/view"
	"nf/schema/diag"
)

// maxFindings is how many findings are shown; the others are counted.
const maxFindings = 200

// report is the JSON form of a check (contract 6).
type report struct {
	FormatVersion string       `json:"format_version"`
	Findings      diag.List    `json:"findings"`
	Summary       diag.Summary `json:"summary"`
}

// checked is what a check looked at.
type checked struct {
	findings diag.List
	files    int
	objects  int
	source   func(file string) ([]byte, bool)
}

// tellFindings prints findings and their count.
func (sh *shell) tellFindings(c checked) error {
	r := diag.NewReport(c.findings, c.files, c.objects, maxFindings)
	if sh.settings.output == "json" {
		if r.Findings == nil {
			r.Findings = diag.List{}
		}
		return sh.json(report{view.FormatVersion, r.Findings, r.Summary})
	}
	sh.show(findingsText(c, r.Findings) + r.Summary.String() + "\n")
	return nil
}

// findingsText draws findings, each followed by an empty line.
func findingsText(c checked, list diag.List) string {
	var b strings.Builder
	for _, f := range list {
		source, _ := c.source(f.File)
		b.WriteString(view.SafeLines(f.Print(source)) + "\n")
	}
	return b.String()
}

// checkedOf gives what the load of a project found.
func checkedOf(p *project, findings diag.List) checked {
	return checked{findings: findings, files: p.files(), objects: p.bundle.Declared, source: p.bundle.Source}
}

// codeOfFindings gives the exit code that findings come to (contract 5.3).
func codeOfFindings(list diag.List) int {
	codes := []int{exitOK}
	for _, f := range list {
		if f.Level == diag.Error {
			codes = append(codes, codeOfFinding(f.Code))
		}
	}
	return worst(codes...)
}

var (
	refusals = []diag.Code{"NF6101", "NF6102", "NF6103", "NF6104", "NF6105", "NF6108", "NF6109", "NF6111", "NF6113", "NF6114", "NF6115"} //nolint:gochecknoglobals // a constant table
	stale    = []diag.Code{"NF6106", "NF6107"}                                                                                           //nolint:gochecknoglobals // as above
	unread   = []diag.Code{"NF1001", "NF7002"}                                                                                           //nolint:gochecknoglobals // as above
)

func codeOfFinding(code diag.Code) int {
	switch {
	case slices.Contains(refusals, code):
		return exitRefused
	case slices.Contains(stale, code):
		return exitStale
	case slices.Contains(unread, code):
		return exitFailed
	}
	return exitFindings
}
