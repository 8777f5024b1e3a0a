package api

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"nf/runtime/execution"
	"nf/schema/jsontext"
)

// readBody reads the JSON object of a request, unpacked and bounded by the route's limit. It is called after key, scope and route are known.
func (c *call) readBody() (*fields, error) {
	if c.ContentLength == 0 && c.Request.Header.Get("Content-Type") == "" {
		return newFields("", map[string]any{}), nil
	}
	if kind, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &failure{code: codeMediaType, message: "send a body as Content-Type: application/json"}
	}
	text, err := c.readAll()
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return newFields("", map[string]any{}), nil
	}
	value, err := jsontext.DecodeObject(text, jsontext.Limits{Bytes: len(text), Depth: execution.MaxDepth, Mend: mendable})
	if err != nil {
		return nil, badJSON("", err)
	}
	return newFields("", value), nil
}

func (c *call) readAll() ([]byte, error) {
	limit := c.route.maxBody
	var from io.Reader = http.MaxBytesReader(c.ResponseWriter, c.Body, limit)
	switch encoding := c.Request.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(from)
		if err != nil {
			return nil, &failure{code: codeInvalidJSON, message: "the body says gzip and is not"}
		}
		from = unpacked
	default:
		return nil, &failure{code: codeMediaType, message: "Content-Encoding may be gzip, or absent"}
	}
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) || int64(len(text)) > limit {
		return nil, &failure{code: codePayloadTooLarge, message: "the body is over the limit", details: map[string]any{"limit": limit, "size": max(c.ContentLength, limit+1)}}
	}
	if err != nil {
		return nil, &failure{code: codeInvalidJSON, message: "the body could not be read to its end"}
	}
	return text, nil
}

// badJSON says where a text is not JSON that nf takes. at is the JSON Pointer of the text in the body.
func badJSON(at string, err error) *failure {
	f := &failure{code: codeInvalidJSON, message: "the body is not valid JSON: " + err.Error()}
	if where, ok := errors.AsType[*jsontext.Error](err); ok {
		f.details = map[string]any{"field": at + where.Pointer, "offset": where.Offset}
	}
	return f
}

// payload encodes a JSON object that is stored and bounds its size.
func payload(at string, value map[string]any) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	size, err := jsontext.Measure(value, execution.MaxPayload, execution.MaxDepth)
	if errors.Is(err, jsontext.ErrTooLarge) {
		return nil, &failure{code: codePayloadTooLarge, message: at + " is over the limit of 6 MiB", details: map[string]any{"field": at, "limit": execution.MaxPayload, "size": size}}
	}
	if err != nil {
		return nil, invalid(at, "at most 256 levels of JSON", "%s: %v", at, err)
	}
	text, err := jsontext.Encode(value)
	if err != nil {
		return nil, invalid(at, "a JSON object", "%s: %v", at, err)
	}
	return text, nil
}

// mendable says which texts never stop a request: what is not valid in a reason or a log message is replaced by U+FFFD (contract 2.3).
func mendable(pointer string) bool {
	return strings.HasSuffix(pointer, "/reason") && strings.Count(pointer, "/") <= 3 && !strings.Contains(pointer, "/output") ||
		strings.HasSuffix(pointer, "/message") && strings.HasPrefix(pointer, "/logs/")
}
