// Package httptask is the system task HTTP: one request, one verdict (contract 1.7, 2.6, 2.7; spec D.2).
package httptask

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// Options configures the task. Client is required.
type Options struct {
	Client *outbound.Client
}

// New makes the task.
func New(opts Options) (systemtasks.Task, error) {
	if opts.Client == nil {
		return nil, errors.New("making the HTTP task: no client is given")
	}
	return &task{client: opts.Client}, nil
}

type task struct{ client *outbound.Client }

// Type implements systemtasks.Task.
func (*task) Type() schema.TaskType { return schema.TypeHTTP }

// Run implements systemtasks.Task: it makes the call and judges the answer.
func (t *task) Run(ctx context.Context, call systemtasks.Call) systemtasks.Outcome {
	secrets := &systemtasks.Redactor{}
	return systemtasks.Conclude(t.run(ctx, call, secrets), secrets)
}

func (t *task) run(ctx context.Context, call systemtasks.Call, secrets *systemtasks.Redactor) systemtasks.Outcome {
	if ctx.Err() != nil {
		return systemtasks.Released{}
	}
	request, failed := build(ctx, call, secrets)
	if failed != nil {
		return failed
	}
	resp, failure := t.client.Do(ctx, request)
	if failure != nil {
		if failure.Released() {
			return systemtasks.Released{Sent: failure.Sent}
		}
		return systemtasks.Failed{Cause: failure.Cause, Reason: failure.Reason, Terminal: failure.Terminal}
	}
	return judge(resp, call.Target, secrets)
}

// judge turns an answer into an outcome. The output has the same shape whatever the status.
func judge(resp *outbound.Response, target *schema.Target, secrets *systemtasks.Redactor) systemtasks.Outcome {
	out := output(resp, target, secrets)
	switch resp.Verdict {
	case outbound.Success:
		return systemtasks.Completed{Output: out}
	case outbound.Retryable:
		failed := systemtasks.Failed{Cause: systemtasks.CauseHTTPStatus, Reason: reason(resp, secrets), Output: out}
		if resp.HasMinWait {
			failed.MinWait, failed.Source = resp.MinWait, systemtasks.SourceRetryAfter
		}
		return failed
	case outbound.Terminal:
		return systemtasks.Failed{Cause: systemtasks.CauseHTTPStatus, Reason: reason(resp, secrets), Terminal: true, Output: out}
	case outbound.Unfollowed:
		return systemtasks.Failed{Cause: systemtasks.CauseInvalidRequest, Reason: reason(resp, secrets), Terminal: true, Output: out}
	case outbound.Malformed:
		return systemtasks.Failed{Cause: systemtasks.CauseConnectionFailed, Reason: "no final answer: " + reason(resp, secrets), Output: out}
	}
	return systemtasks.Failed{Cause: systemtasks.CauseConnectionFailed, Reason: reason(resp, secrets), Output: out}
}

// reasonBody is how much of a body a reason shows, in bytes.
const reasonBody = 1 << 10

// reason gives `503 Service Unavailable from https://host/path: <first 1 KiB of the body>` (contract 2.6). Secrets are masked
// before the cut, since half a secret would not be found after it.
func reason(resp *outbound.Response, secrets *systemtasks.Redactor) string {
	text := outbound.StatusLine(resp.Status) + " from " + outbound.Where(resp.URL)
	if resp.Unfollowed != "" {
		text += ", not followed since " + resp.Unfollowed
	}
	body := systemtasks.Cut(systemtasks.CleanText(secrets.Text(string(resp.Body))), reasonBody)
	if body == "" {
		return text
	}
	return text + ": " + body
}

// output gives status, headers and body of an answer.
func output(resp *outbound.Response, target *schema.Target, secrets *systemtasks.Redactor) map[string]any {
	return map[string]any{
		"status":  jsontext.Integer(int64(resp.Status)),
		"headers": headers(resp.Headers, target),
		"body":    body(resp, secrets),
	}
}

// headers gives the headers of an answer in lower case, several values of one name joined, without those that carry
// credentials and those named like the Target's own (contract 2.7).
func headers(from http.Header, target *schema.Target) map[string]any {
	dropped := map[string]bool{"set-cookie": true, "authorization": true, "proxy-authorization": true, "www-authenticate": true}
	if target != nil && target.HTTP != nil {
		for name := range target.HTTP.Headers {
			dropped[schema.HeaderKey(name)] = true
		}
	}
	out := make(map[string]any, len(from))
	for name, values := range from {
		if !dropped[schema.HeaderKey(name)] {
			out[strings.ToLower(name)] = systemtasks.CleanText(strings.Join(values, ", "))
		}
	}
	return out
}

// outputLevels is how deep the body lies in the output.
const outputLevels = 1

// body gives the parsed body if it says that it is JSON and is, within the limits of contract 7.1; else text. Text is masked
// before bad characters are replaced, which could else break a secret into something no longer found.
func body(resp *outbound.Response, secrets *systemtasks.Redactor) any {
	if isJSON(resp.Headers.Get("Content-Type")) {
		if value, err := jsontext.Decode(resp.Body, jsontext.Limits{Depth: jsontext.MaxDepth - outputLevels}); err == nil {
			return value
		}
	}
	return systemtasks.CleanText(secrets.Text(string(resp.Body)))
}

// isJSON says that a media type is JSON or built on it.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// describe names the JSON type of a value in a message.
func describe(v any) string { return fmt.Sprintf("not %s", jsontext.TypeName(v)) }
