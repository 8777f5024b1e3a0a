//go:build unix

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FC-127, FC-128 and their kind: whatever text a client sends, in any field of any call, is kept, mended or refused with what is wrong. Nothing of it makes the
// server fail, and nothing that was accepted stays stuck.
func TestFC_127_FC_128_NoTextOfAClientBreaksACall(t *testing.T) {
	t.Parallel()
	d := open(t, packing()...)
	texts := map[string]string{
		"NUL": `a\u0000b`, "NUL alone": `\u0000`, "lone high surrogate": `x\ud800`, "lone low surrogate": `\udc00x`, "swapped surrogates": `\udc00\ud800`,
		"not a character": `\uffff`, "raw byte": "caf\xe9", "raw surrogate": "\xed\xa0\x80", "overlong": "\xc0\x80", "cut": "\xe2\x82", "control": `\u001b[31m\u0007`,
		"line separators": `\u2028\u2029\u0085`, "long": strings.Repeat("ä", 20_000), "right to left": `\u202egnp.exe`, "empty": ``, "blank": ` `,
	}
	fails := func(name string, a answer) {
		t.Helper()
		require.Less(t, a.status, 500, "%s: %s", name, a.text)
		if a.status >= 400 {
			require.NotEmpty(t, a.errorCode(), name)
		}
	}
	accepted := func(name string, a answer) {
		t.Helper()
		require.Less(t, a.status, 300, "%s: %s", name, a.text)
	}
	for name, text := range texts {
		for field, body := range map[string]string{
			"idempotencyKey": `{"idempotencyKey":"%s","input":{}}`, "correlationId": `{"correlationId":"%s","input":{}}`, "input": `{"input":{"order":"%s"}}`,
			"input key": `{"input":{"%s":1}}`,
		} {
			fails("start "+field+" "+name, d.call(d.admin, http.MethodPost, "{ns}/executions/order", fmt.Sprintf(body, text)))
		}
		id := d.start("bill", nil)
		fails("workerId "+name, d.call(d.admin, http.MethodPost, "{ns}/queues/charge/lease", fmt.Sprintf(`{"workerId":"%s"}`, text)))
		fails("requestId "+name, d.call(d.admin, http.MethodPost, "{ns}/queues/charge/lease", fmt.Sprintf(`{"workerId":"w","requestId":"%s"}`, text)))
		accepted("terminate "+name, d.call(d.admin, http.MethodPost, "{ns}/executions/"+id+"/terminate", fmt.Sprintf(`{"reason":"%s"}`, text)))
		d.start("bill", nil)
		task := d.lease(d.admin, "charge", 1)[0]
		id = task["executionId"].(string)
		accepted("log "+name, d.call(d.admin, http.MethodPost, path(task, "logs"), fmt.Sprintf(`{"leaseToken":%q,"logs":[{"message":"%s"}]}`, task["leaseToken"], text)))
		fails("token "+name, d.call(d.admin, http.MethodPost, path(task, "report"), fmt.Sprintf(`{"leaseToken":"%s","status":"COMPLETED"}`, text)))
		refused := d.call(d.admin, http.MethodPost, path(task, "report"), fmt.Sprintf(`{"leaseToken":%q,"status":"COMPLETED","output":{"%s":"%s"}}`, task["leaseToken"], text, text))
		fails("output "+name, refused)
		reported := d.call(d.admin, http.MethodPost, path(task, "report"), fmt.Sprintf(`{"leaseToken":%q,"status":"FAILED_WITH_TERMINAL_ERROR","reason":"%s"}`, task["leaseToken"], text))
		fails("reason "+name, reported)
		if refused.status != http.StatusOK {
			require.Equal(t, http.StatusOK, reported.status, "a reason never stops a report: %s: %s", name, reported.text)
		}
		x := d.call(d.admin, http.MethodGet, "{ns}/executions/"+id, nil)
		require.Equal(t, http.StatusOK, x.status, x.text)
		require.NotEqual(t, "RUNNING", x.body["status"], name)
	}
	d.start("order", nil)
	task := d.lease(d.admin, "pack", 1)[0]
	a := d.call(d.admin, http.MethodPost, path(task, "report"), fmt.Sprintf(`{"leaseToken":%q,"status":"FAILED_WITH_TERMINAL_ERROR","reason":"%s"}`, task["leaseToken"], strings.Repeat("ä", 1<<19)))
	require.Equal(t, http.StatusOK, a.status, "1 MB")
	for _, where := range []string{
		"{ns}/executions?workflow=%00", "{ns}/executions?correlationId=a%00b", "{ns}/executions?status=%00", "{ns}/executions?cursor=%00", "{ns}/executions/%00",
		"{ns}/queues/%00", "{ns}/tasks/%00", "{ns}/executions?workflow=%ff", "/v1/ns/%00/executions", "/v1/ns/%ff/executions", "{ns}/semaphores/%00", "{ns}/definitions/Workflow/%00",
	} {
		fails(where, d.call(d.admin, http.MethodGet, where, nil))
	}
	fails("workflow", d.call(d.admin, http.MethodPost, "{ns}/executions/a%00b", `{"input":{}}`))
	fails("queue", d.call(d.admin, http.MethodPost, "{ns}/queues/a%00b/lease", `{"workerId":"w"}`))
	fails("key", d.call("nf_\u00e9\ufffd", http.MethodGet, "{ns}/executions", nil))
}
