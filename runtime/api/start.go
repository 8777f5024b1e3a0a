package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"nf/runtime/engine"
	"nf/runtime/store"
	"nf/schema/spec"
)

// Started is what a start says (contract 4.2).
type Started struct {
	ExecutionID       string `json:"executionId"`
	Status            string `json:"status"`
	AwaitingAdmission bool   `json:"awaitingAdmission"`
	Revision          int32  `json:"revision"`
	Created           bool   `json:"created"`
}

var startBody = []param{
	{name: "input", kind: "object", about: "input of the execution ({})"},
	{name: "version", kind: "integer", about: "asks for the revision that declares this version; default: the one in force"},
	{name: "idempotencyKey", kind: "string", about: "1–255 characters; a repeated start with it gives the same execution"},
}

func (c *call) start() (any, error) {
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	request := c.startRequest(body, c.pathText("workflow"))
	if err := body.done(); err != nil {
		return nil, err
	}
	if _, err := payload("/input", request.Input); err != nil {
		return nil, err
	}
	result := c.s.Engine.Start(c.Context(), []engine.StartRequest{request})[0]
	if result.Err != nil {
		return nil, c.startFailure(request, result.Err)
	}
	if result.Created {
		c.status = http.StatusCreated
	}
	return started(result), nil
}

func (c *call) startRequest(body *fields, workflow string) engine.StartRequest {
	return engine.StartRequest{
		Namespace: c.ns, Workflow: workflow, Input: body.object("input"),
		Version: body.integer("version", 0, 1, 1<<53), Key: body.text("idempotencyKey", false, 255),
	}
}

func started(r engine.StartResult) Started {
	return Started{ExecutionID: r.ID.Exec.String(), Status: r.Status, Revision: r.Revision, Created: r.Created}
}

// startFailure says why a start was refused.
func (c *call) startFailure(request engine.StartRequest, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		if request.Version > 0 {
			return notFound("workflow %q has no version %d in namespace %q", cut(request.Workflow, 255), request.Version, request.Namespace)
		}
		return notFound("workflow %q does not exist in namespace %q%s", cut(request.Workflow, 255), request.Namespace, nearest(request.Workflow, c.workflows()))
	case errors.Is(err, engine.ErrRetired):
		return &failure{code: codeRetired, message: fmt.Sprintf("workflow %q is retired: its file is gone; running executions finish", request.Workflow)}
	case errors.Is(err, engine.ErrSchemaViolation):
		return &failure{code: codeSchemaViolation, message: err.Error(), details: map[string]any{"field": "/input", "findings": mismatches(err)}}
	case errors.Is(err, engine.ErrIdempotencyMismatch):
		return &failure{code: codeIdemMismatch, message: err.Error(), details: map[string]any{"field": "/idempotencyKey"}}
	case errors.Is(err, engine.ErrTooLarge):
		return &failure{code: codePayloadTooLarge, message: err.Error(), details: map[string]any{"field": "/input", "limit": 6 << 20}}
	case errors.Is(err, engine.ErrStopped):
		return &failure{code: codeUnavailable, message: "the runner is shutting down; nothing was stored", retryAfter: 1}
	case errors.Is(err, engine.ErrUnknownOutcome):
		return &failure{code: codeUnavailable, message: "the database did not answer the commit; repeat with the same idempotencyKey", details: map[string]any{"outcome": "unknown"}}
	}
	return err
}

// mismatches lists how an input does not match a schema, at JSON Pointers into the body.
func mismatches(err error) []map[string]string {
	var m *spec.Mismatch
	if !errors.As(err, &m) {
		return []map[string]string{{"pointer": "/input", "message": err.Error()}}
	}
	list := make([]map[string]string, len(m.Problems))
	for i, p := range m.Problems {
		list[i] = map[string]string{"pointer": "/input" + p.Pointer, "message": p.Message}
	}
	return list
}

// startBatch judges each item by itself, in order.
func (c *call) startBatch() (any, error) {
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	items := body.list("items", 1, 500)
	if err := body.done(); err != nil {
		return nil, err
	}
	results := make([]any, len(items))
	var requests []engine.StartRequest
	var places []int
	for i, item := range items {
		request, failed := c.batchItem(i, item)
		if failed != nil {
			results[i] = c.inBatch(failed)
			continue
		}
		requests, places = append(requests, request), append(places, i)
	}
	for j, r := range c.s.Engine.Start(c.Context(), requests) {
		if r.Err != nil {
			results[places[j]] = c.inBatch(c.startFailure(requests[j], r.Err))
			continue
		}
		results[places[j]] = started(r)
	}
	return map[string]any{"results": results}, nil
}

func (c *call) batchItem(i int, item any) (engine.StartRequest, error) {
	at := fmt.Sprintf("/items/%d", i)
	object, ok := item.(map[string]any)
	if !ok {
		return engine.StartRequest{}, invalid(at, "an object", "entry %d is not an object", i)
	}
	f := newFields(at, object)
	request := c.startRequest(f, f.text("workflow", true, 255))
	if err := f.done(); err != nil {
		return request, err
	}
	_, err := payload(at+"/input", request.Input)
	return request, err
}

// inBatch is a refusal of one item of a batch.
func (c *call) inBatch(err error) ErrorBody {
	f := c.s.classify(c, err)
	return ErrorBody{Error: f.code, Message: f.message, Details: f.details}
}

// rawJSON hands stored JSON through as it is.
func rawJSON(text []byte) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	return text
}
