//go:build unix

package reload

import (
	"net/http"
	"net/http/httptest"

	"nf/runtime/reload/watch"
	"nf/runtime/telemetry"
	"nf/schema/diag"
)

type diagList = diag.List

var hintOverflow = watch.Hint{Overflow: true} //nolint:gochecknoglobals // a constant

// scrape reads the metrics page.
func scrape(m *telemetry.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Body.String()
}
