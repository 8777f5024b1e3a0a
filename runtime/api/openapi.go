package api

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

//go:embed docs.html
var docsPage []byte

//go:embed docs.js
var docsScript []byte

//go:embed docs.css
var docsStyle []byte

// openAPI makes the OpenAPI 3.1 document from the route table, so that it cannot say what the server does not do.
func openAPI(routes []route, version string) []byte {
	paths := map[string]map[string]any{}
	for _, r := range routes {
		item := paths[r.path]
		if item == nil {
			item = map[string]any{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = operation(r)
	}
	doc := map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "nf", "version": version, "description": "Declarative workflow runner. Every refusal carries the error ErrorBody."},
		"paths":   paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{
				"key":    map[string]any{"type": "apiKey", "in": "header", "name": "x-api-key"},
				"bearer": map[string]any{"type": "http", "scheme": "bearer"},
			},
			"schemas": map[string]any{"Error": map[string]any{
				"type": "object", "required": []string{"error", "message"},
				"properties": map[string]any{
					"error": map[string]any{"type": "string", "enum": codeNames()}, "message": typed("string"),
					"details": typed("object"), "requestId": typed("string"),
				},
			}},
		},
	}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(err) //nolint:forbidigo // built of maps and strings
	}
	return append(out, '\n')
}

func codeNames() []string {
	names := make([]string, 0, len(httpStatus))
	for c := range httpStatus {
		names = append(names, string(c))
	}
	slices.Sort(names)
	return names
}

func typed(kind string) map[string]any {
	if kind == "any" {
		return map[string]any{}
	}
	return map[string]any{"type": kind}
}

func operation(r route) map[string]any {
	status := r.status
	if status == 0 {
		status = http.StatusOK
	}
	op := map[string]any{
		"summary":     r.summary,
		"operationId": operationID(r),
		"responses": map[string]any{
			httpCode(status): map[string]any{"description": http.StatusText(status)},
			"default": map[string]any{"description": "Refused", "content": map[string]any{
				"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Error"}},
			}},
		},
	}
	var params []any
	for part := range strings.SplitSeq(r.path, "/") {
		if strings.HasPrefix(part, "{") {
			params = append(params, map[string]any{"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": typed("string")})
		}
	}
	for _, q := range r.query {
		params = append(params, map[string]any{"name": q.name, "in": "query", "required": q.required, "description": q.about, "schema": typed(q.kind)})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.body != nil {
		op["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": bodySchema(r.body)}}}
	}
	switch {
	case r.lease:
		op["security"] = []any{map[string]any{"key": []string{"queues:lease:<queue>"}}, map[string]any{"bearer": []string{"queues:lease:<queue>"}}}
	case r.scope != "":
		op["security"] = []any{map[string]any{"key": []string{string(r.scope)}}, map[string]any{"bearer": []string{string(r.scope)}}}
	default:
		op["security"] = []any{}
	}
	return op
}

func bodySchema(fields []param) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		p := typed(f.kind)
		if f.about != "" {
			p["description"] = f.about
		}
		properties[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

func operationID(r route) string {
	var id strings.Builder
	id.WriteString(strings.ToLower(r.method))
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(r.path, "/v1"), func(c rune) bool { return strings.ContainsRune("/{}-.", c) }) {
		id.WriteString("_" + part)
	}
	return id.String()
}

func httpCode(status int) string { return strconv.Itoa(status) }
