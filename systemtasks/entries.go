package systemtasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"nf/schema"
	"nf/schema/jsontext"
)

// Entries says how the headers of an HTTP call or the metadata of a gRPC call are put together.
type Entries struct {
	Field      string                       // key of the input: headers, metadata
	Declared   map[string]schema.Secretable // the Target's own
	CheckName  func(string) error
	CheckValue func(string) error
}

// Resolve gives the entries to send, by the name as written, and registers every secret that it reads with secrets. The Target's
// come with the task's; the task may not override them. On failure it gives the outcome of the call instead.
//
// Secrets of the task are read in the namespace of the execution, those of the Target in the Target's (contract 1.8).
func (e Entries) Resolve(ctx context.Context, call Call, secrets *Redactor) (map[string]string, Outcome) {
	out := map[string]string{}
	taken := map[string]string{} // comparison form → name as written
	for _, name := range slices.Sorted(maps.Keys(e.Declared)) {
		if failed := e.claim(taken, name); failed != nil {
			return nil, failed
		}
		declared := e.Declared[name]
		if declared.Secret == nil {
			out[name] = declared.Text
			continue
		}
		value, failed := e.secret(ctx, call, call.Target.Metadata.Namespace, *declared.Secret, secrets)
		if failed != nil {
			return nil, failed
		}
		out[name] = value
	}
	own, failed := e.own(call)
	if failed != nil {
		return nil, failed
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if failed := e.claim(taken, name); failed != nil {
			return nil, failed
		}
		value, failed := e.value(ctx, call, name, own[name], secrets)
		if failed != nil {
			return nil, failed
		}
		out[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if err := e.CheckValue(out[name]); err != nil {
			return nil, Refused(fmt.Sprintf("%s.%s: %s", e.Field, name, err))
		}
	}
	return out, nil
}

// own gives the entries of the task's input.
func (e Entries) own(call Call) (map[string]any, Outcome) {
	switch own := call.Input[e.Field].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return own, nil
	default:
		return nil, Misfit(fmt.Sprintf("%s must be an object, not %s", e.Field, jsontext.TypeName(own)))
	}
}

// claim holds a name to the rules and sees that no two are the same to a server.
func (e Entries) claim(taken map[string]string, name string) Outcome {
	if err := e.CheckName(name); err != nil {
		return Refused(fmt.Sprintf("%s: %s", e.Field, err))
	}
	key := schema.HeaderKey(name)
	if other, ok := taken[key]; ok {
		if _, declared := e.Declared[other]; declared {
			return Refused(fmt.Sprintf("%s.%s: the Target sets %q, which a task may not override", e.Field, name, other))
		}
		return Refused(fmt.Sprintf("%s.%s: %q is the same name to a server", e.Field, name, other))
	}
	taken[key] = name
	return nil
}

// value gives the text of one entry of the task.
func (e Entries) value(ctx context.Context, call Call, name string, v any, secrets *Redactor) (string, Outcome) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	ref, isRef := schema.ParseSecretRef(v)
	switch {
	case !isRef:
		return "", Misfit(fmt.Sprintf("%s.%s must be text, a number or a secretRef, not %s", e.Field, name, jsontext.TypeName(v)))
	case call.Target == nil:
		return "", Misfit(fmt.Sprintf("%s.%s: a secretRef is allowed only beside a target", e.Field, name))
	}
	return e.secret(ctx, call, call.Namespace, ref, secrets)
}

// secret resolves a reference; the value is registered before it can go anywhere.
func (e Entries) secret(ctx context.Context, call Call, namespace string, ref schema.SecretRef, secrets *Redactor) (string, Outcome) {
	unavailable := func(err error) Outcome {
		return Failed{
			Cause:  CauseSecretUnavailable,
			Reason: fmt.Sprintf("the secret %q, key %q, of namespace %q does not resolve: %s", ref.Name, ref.Key, namespace, err),
		}
	}
	if call.Secrets == nil {
		return "", unavailable(errors.New("no provider of secrets is set up"))
	}
	if !schema.IsSecretName(ref.Name) || !schema.IsSecretName(ref.Key) {
		return "", unavailable(errors.New("its name or key is not one that a secret can have"))
	}
	value, err := call.Secrets(ctx, namespace, ref)
	switch {
	case ctx.Err() != nil:
		return "", Released{}
	case err != nil:
		return "", unavailable(err)
	}
	secrets.AddReferenced(ref.Prefix, value)
	return ref.Prefix + value, nil
}

// Refused is a request that may not be sent.
func Refused(reason string) Failed {
	return Failed{Cause: CauseInvalidRequest, Reason: "request refused: " + reason, Terminal: true}
}

// Misfit is an input that does not fit the type of the task.
func Misfit(reason string) Failed {
	return Failed{Cause: CauseInputInvalid, Reason: "input does not fit: " + reason, Terminal: true}
}

// Timeout reads `timeoutMs` of an input: a whole number of 1–600,000 milliseconds; absent or null, the Target's
// default, or 30,000 without a Target.
func Timeout(call Call) (schema.Millis, Outcome) {
	const standard, longest = 30_000, 600_000
	v, given := call.Input["timeoutMs"]
	if !given || v == nil {
		if call.Target != nil && call.Target.DefaultTimeout > 0 {
			return call.Target.DefaultTimeout, nil
		}
		return standard, nil
	}
	number, ok := v.(json.Number)
	if ok {
		if ms, whole := jsontext.Int(number); whole && ms >= 1 && ms <= longest {
			return schema.Millis(ms), nil
		}
	}
	return 0, Misfit(fmt.Sprintf("timeoutMs must be a whole number from 1 to %d", longest))
}
