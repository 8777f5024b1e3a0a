//go:build unix

package api_test

import (
	"encoding/json"
	"testing"

	"nf/runtime/api"
)

type jsonNumber = json.Number

// FuzzReportBody: no text of a report makes the reader panic, and what it takes is a verdict within the limits.
func FuzzReportBody(f *testing.F) {
	for _, seed := range []string{
		`{"leaseToken":"1.x","status":"COMPLETED","output":{"a":[1,2.5,{"b":null}]}}`, `{"status":"FAILED","reason":"\ud800","retryAfterMs":1e3,"leaseToken":"t"}`,
		`{"leaseToken":"t","status":"FAILED_WITH_TERMINAL_ERROR","workerId":"w"}`, `{"items":[{}]}`, `{"a":1,"a":2}`, "\xff", `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		report, err := api.ReadReport(body)
		if err == nil && (report.Status == 0 || len(report.Output) > 6<<20) {
			t.Fatalf("took %q as %+v", body, report)
		}
	})
}
