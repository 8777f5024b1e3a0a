package httptask

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// maxRedirects is how many redirects are followed without a Target (contract 1.7).
const maxRedirects = 3

// build makes the request of a call out of its input and Target, or gives the outcome of a call that cannot be made.
func build(ctx context.Context, call systemtasks.Call, secrets *systemtasks.Redactor) (outbound.Request, systemtasks.Outcome) {
	var r outbound.Request
	if failed := knownKeys(call.Input); failed != nil {
		return r, failed
	}
	method, failed := method(call.Input)
	if failed != nil {
		return r, failed
	}
	timeout, failed := systemtasks.Timeout(call)
	if failed != nil {
		return r, failed
	}
	r = outbound.Request{Method: method, Timeout: timeout, MaxRedirects: maxRedirects, MaxResponseBytes: outbound.MaxResponseBody}
	if failed := locate(&r, call); failed != nil {
		return r, failed
	}
	if failed := addQuery(r.URL, call.Input["query"]); failed != nil {
		return r, failed
	}
	contentType, failed := setBody(&r, call.Input["body"])
	if failed != nil {
		return r, failed
	}
	return r, setHeaders(ctx, &r, call, contentType, secrets)
}

// knownKeys refuses what the type does not know (contract 1.7). The loader has refused it before; an input that gets here by
// another way is not guessed at.
func knownKeys(input map[string]any) systemtasks.Outcome {
	for _, key := range slices.Sorted(maps.Keys(input)) {
		switch key {
		case "uri", "target", "path", "method", "query", "headers", "body", "timeoutMs":
		default:
			return systemtasks.Misfit(fmt.Sprintf("HTTP has no input %q", key))
		}
	}
	return nil
}

// method reads `method`.
func method(input map[string]any) (string, systemtasks.Outcome) {
	switch given := input["method"].(type) {
	case nil:
		return http.MethodGet, nil
	case string:
		switch given {
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
			return given, nil
		}
	}
	return "", systemtasks.Misfit("method must be one of GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS")
}

// locate sets where the call goes: `uri`, or the Target's base and `path`.
func locate(r *outbound.Request, call systemtasks.Call) systemtasks.Outcome {
	uri, hasURI := call.Input["uri"]
	_, hasTarget := call.Input["target"]
	path, hasPath := call.Input["path"]
	switch {
	case hasURI == hasTarget:
		return systemtasks.Misfit("exactly one of uri and target must be given")
	case hasURI && hasPath:
		return systemtasks.Misfit("path goes with target, not with uri")
	case hasURI:
		return locateURI(r, uri)
	case call.Target == nil:
		return systemtasks.Misfit(fmt.Sprintf("the target %v is not declared", call.Input["target"]))
	case call.Target.HTTP == nil:
		return systemtasks.Misfit(fmt.Sprintf("the target %s is not an HTTP target", call.Target.Address()))
	}
	text, ok := path.(string)
	if !ok && path != nil {
		return systemtasks.Misfit("path must be text, " + describe(path))
	}
	return locatePath(r, call.Target, text)
}

// locateURI takes a URI that is literal or was built: nothing about it is trusted.
func locateURI(r *outbound.Request, given any) systemtasks.Outcome {
	text, ok := given.(string)
	if !ok {
		return systemtasks.Misfit("uri must be text, " + describe(given))
	}
	u, err := url.Parse(text)
	if err != nil {
		return systemtasks.Refused("uri is not a URI") // the parser's own text repeats it, query and all
	}
	if _, err := outbound.OriginOf(u); err != nil {
		return systemtasks.Refused(err.Error())
	}
	u.Fragment, u.RawFragment = "", ""
	u.RawQuery = encodeQuery(u.RawQuery)
	r.URL = u
	return nil
}

// encodeQuery percent-encodes what may not stand in the query of a request line: an expression may bring in anything.
func encodeQuery(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}

// locatePath joins the path to the Target's base. Scheme, host and port are the base's by construction.
func locatePath(r *outbound.Request, target *schema.Target, path string) systemtasks.Outcome {
	if err := schema.CheckPath(path); err != nil {
		return systemtasks.Refused(err.Error())
	}
	base, err := url.Parse(target.HTTP.BaseURI)
	if err != nil {
		return systemtasks.Refused(fmt.Sprintf("the base of the target %s is not a URI", target.Address()))
	}
	origin, err := outbound.OriginOf(base)
	if err != nil {
		return systemtasks.Refused(fmt.Sprintf("the base of the target %s: %s", target.Address(), err))
	}
	joined := base.EscapedPath()
	if path != "" {
		joined = strings.TrimSuffix(joined, "/") + "/" + strings.TrimPrefix(path, "/")
	}
	escaped := escapePath(joined)
	decoded, err := url.PathUnescape(escaped)
	if err != nil {
		return systemtasks.Refused(fmt.Sprintf("the path of the target %s is badly encoded", target.Address()))
	}
	r.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: decoded, RawPath: escaped}
	r.Exempt = origin
	r.MaxRedirects = target.HTTP.MaxRedirects
	if target.HTTP.MaxResponseBytes > 0 {
		r.MaxResponseBytes = min(target.HTTP.MaxResponseBytes, outbound.MaxResponseBody)
	}
	return nil
}

// escapePath percent-encodes what may not stand in a path, and leaves what is encoded already.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>^`{|}[]", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// addQuery appends `query`, its names in alphabetical order, to the query of the URI.
func addQuery(u *url.URL, given any) systemtasks.Outcome {
	if given == nil {
		return nil
	}
	query, ok := given.(map[string]any)
	if !ok {
		return systemtasks.Misfit("query must be an object, " + describe(given))
	}
	var parts []string
	if u.RawQuery != "" {
		parts = append(parts, u.RawQuery)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values, isList := query[name].([]any)
		if !isList {
			values = []any{query[name]}
		}
		for _, v := range values {
			text, ok := scalar(v)
			if !ok {
				return systemtasks.Misfit(fmt.Sprintf("query.%s must be text, a number, a boolean or a list of them, %s", name, describe(v)))
			}
			parts = append(parts, url.QueryEscape(name)+"="+url.QueryEscape(text))
		}
	}
	u.RawQuery = strings.Join(parts, "&")
	return nil
}

// scalar gives the text of a text, number or boolean.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// setBody sets the body and gives the content type that goes with it: objects and lists, and other JSON values, are sent as
// JSON, text as it is; null is no body.
func setBody(r *outbound.Request, given any) (contentType string, failed systemtasks.Outcome) {
	if given == nil {
		return "", nil
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "", systemtasks.Misfit(fmt.Sprintf("a body does not go with %s", r.Method))
	}
	if text, ok := given.(string); ok {
		r.Body = []byte(text)
	} else {
		encoded, err := jsontext.Encode(given)
		if err != nil {
			return "", systemtasks.Misfit("body: " + err.Error())
		}
		r.Body, contentType = encoded, "application/json"
	}
	if len(r.Body) > outbound.MaxRequestBody {
		return "", systemtasks.Refused("the body is larger than 6 MiB")
	}
	return contentType, nil
}

// setHeaders sets the Target's and the task's headers and those that nf adds unless they are given: User-Agent, Content-Type and, where
// a repeat could have an effect, the idempotency key (contract 3.5).
func setHeaders(ctx context.Context, r *outbound.Request, call systemtasks.Call, contentType string, secrets *systemtasks.Redactor) systemtasks.Outcome {
	entries := systemtasks.Entries{Field: "headers", CheckName: schema.CheckHeaderName, CheckValue: schema.CheckHeaderValue}
	if call.Target != nil && call.Target.HTTP != nil {
		entries.Declared = call.Target.HTTP.Headers
	}
	given, failed := entries.Resolve(ctx, call, secrets)
	if failed != nil {
		return failed
	}
	r.Headers = http.Header{"User-Agent": {outbound.UserAgent}}
	if contentType != "" {
		r.Headers.Set("Content-Type", contentType)
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if call.IdempotencyKey != "" {
			r.Headers.Set("Idempotency-Key", call.IdempotencyKey)
		}
	}
	for name, value := range given {
		r.Headers.Set(name, value)
	}
	return nil
}
