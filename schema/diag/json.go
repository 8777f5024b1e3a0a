package diag

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// wire is the JSON form. Names are fixed within a format version; absent fields are left out.
type wire struct {
	Code        Code      `json:"code"`
	Level       Level     `json:"level"`
	Rule        string    `json:"rule,omitempty"`
	Message     string    `json:"message"`
	Hint        string    `json:"hint,omitempty"`
	File        string    `json:"file,omitempty"`
	Start       *Pos      `json:"start,omitempty"`
	End         *Pos      `json:"end,omitempty"`
	Document    *int      `json:"document,omitempty"`
	Pointer     *string   `json:"pointer,omitempty"`
	Object      *Object   `json:"object,omitempty"`
	Related     []Related `json:"related,omitempty"`
	Fix         *Fix      `json:"fix,omitempty"`
	Fingerprint string    `json:"fingerprint"`
}

// MarshalJSON writes the fixed form of contract 6.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	w := wire{
		Code: d.Code, Level: d.Level, Message: d.Message, Hint: d.Hint, File: d.File,
		Object: d.Object, Related: d.Related, Fix: d.Fix, Fingerprint: d.Fingerprint(),
	}
	if e, ok := Explain(d.Code); ok {
		w.Rule = e.Rule
	}
	if d.Range != (Range{}) {
		w.Start, w.End = &d.Range.Start, &d.Range.End
	}
	if d.File != "" {
		w.Document, w.Pointer = &d.Document, &d.Pointer
	} else if d.Pointer != "" {
		w.Pointer = &d.Pointer
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("writing finding %s: %w", d.Code, err)
	}
	return text, nil
}

// UnmarshalJSON reads the form that MarshalJSON writes. Unknown fields are ignored.
func (d *Diagnostic) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("reading a finding: %w", err)
	}
	*d = Diagnostic{Code: w.Code, Level: w.Level, Message: w.Message, Hint: w.Hint, File: w.File, Object: w.Object, Related: w.Related, Fix: w.Fix}
	if w.Start != nil {
		d.Range.Start = *w.Start
	}
	if w.End != nil {
		d.Range.End = *w.End
	}
	if w.Document != nil {
		d.Document = *w.Document
	}
	if w.Pointer != nil {
		d.Pointer = *w.Pointer
	}
	return nil
}

// Fingerprint identifies a finding over edits that only move it: it is taken over code, object and pointer.
func (d Diagnostic) Fingerprint() string {
	object := ""
	if d.Object != nil {
		object = d.Object.String()
	}
	sum := sha256.Sum256([]byte(string(d.Code) + "\n" + object + "\n" + d.Pointer))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// String gives "Kind namespace/name".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// FormatVersion is the version of the report's JSON form. Fields may be added within a version, none removed.
const FormatVersion = 1

// Report is the JSON form of a whole check.
type Report struct {
	FormatVersion int     `json:"format_version"`
	Findings      List    `json:"findings"`
	Summary       Summary `json:"summary"`
}

// Summary counts what was looked at and found. Shown is the number of findings in the report; the others count all.
type Summary struct {
	Files      int `json:"files"`
	Objects    int `json:"objects"`
	Errors     int `json:"errors"`
	Warnings   int `json:"warnings"`
	Infos      int `json:"infos"`
	Suppressed int `json:"suppressed"`
	Shown      int `json:"shown"`
}

// NewReport sorts a copy of the findings, keeps the first maxFindings of them (0 = all) and counts them.
func NewReport(findings List, files, objects, maxFindings int) Report {
	list := append(List{}, findings...)
	list.Sort()
	r := Report{FormatVersion: FormatVersion, Findings: list, Summary: Summary{Files: files, Objects: objects}}
	for _, d := range list {
		switch d.Level {
		case Error:
			r.Summary.Errors++
		case Warning:
			r.Summary.Warnings++
		case Info:
			r.Summary.Infos++
		}
	}
	if maxFindings > 0 && len(list) > maxFindings {
		r.Findings = list[:maxFindings]
	}
	r.Summary.Shown = len(r.Findings)
	return r
}

// String gives the counts in one line.
func (s Summary) String() string {
	text := fmt.Sprintf("%s, %s: %s, %s, %s", count(s.Files, "file"), count(s.Objects, "object"),
		count(s.Errors, "error"), count(s.Warnings, "warning"), count(s.Infos, "info"))
	if all := s.Errors + s.Warnings + s.Infos; s.Shown < all {
		text += fmt.Sprintf(" (%d not shown)", all-s.Shown)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
