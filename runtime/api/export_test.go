package api

import (
	"nf/runtime/engine"
	"nf/runtime/execution"
	"nf/schema/jsontext"
)

// ReadReport reads a report's body as the route does, without its token.
func ReadReport(body []byte) (engine.Report, error) {
	value, err := jsontext.DecodeObject(body, jsontext.Limits{Bytes: len(body), Depth: execution.MaxDepth, Mend: mendable})
	if err != nil {
		return engine.Report{}, badJSON("", err)
	}
	f := newFields("", value)
	f.text("leaseToken", true, 200)
	report, err := reportOf(f)
	if err == nil {
		if failed := f.done(); failed != nil {
			err = failed
		}
	}
	return report, err
}
