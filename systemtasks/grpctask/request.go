package grpctask

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
)

// build makes the call out of its input and Target, or gives the outcome of a call that cannot be made.
func (t *Task) build(ctx context.Context, in systemtasks.Call, secrets *systemtasks.Redactor) (*call, systemtasks.Outcome) {
	if failed := knownKeys(in.Input); failed != nil {
		return nil, failed
	}
	switch {
	case in.Target == nil:
		return nil, systemtasks.Misfit(fmt.Sprintf("the target %v is not declared", in.Input["target"]))
	case in.Target.GRPC == nil:
		return nil, systemtasks.Misfit(fmt.Sprintf("the target %s is not a gRPC target", in.Target.Address()))
	}
	meta := in.Target.Metadata
	c := &call{name: schema.Ref{Namespace: meta.Namespace, Name: meta.Name}.String(), target: in.Target}
	var failed systemtasks.Outcome
	if c.timeout, failed = systemtasks.Timeout(in); failed != nil {
		return nil, failed
	}
	name, ok := in.Input["method"].(string)
	if !ok {
		return nil, systemtasks.Misfit("method must be the bare name of a method")
	}
	if c.method, failed = t.methods.find(c, name); failed != nil {
		return nil, failed
	}
	if failed := c.setRequest(in.Input["request"]); failed != nil {
		return nil, failed
	}
	return c, c.setMetadata(ctx, in, secrets)
}

// knownKeys refuses what the type does not know (contract 1.7).
func knownKeys(input map[string]any) systemtasks.Outcome {
	for _, key := range slices.Sorted(maps.Keys(input)) {
		switch key {
		case "target", "method", "request", "metadata", "timeoutMs":
		default:
			return systemtasks.Misfit(fmt.Sprintf("GRPC has no input %q", key))
		}
	}
	return nil
}

// setRequest makes the message out of its JSON form.
func (c *call) setRequest(given any) systemtasks.Outcome {
	if given == nil {
		given = map[string]any{}
	}
	if _, ok := given.(map[string]any); !ok {
		return systemtasks.Misfit("request must be an object, not " + jsontext.TypeName(given))
	}
	text, err := jsontext.Encode(given)
	if err != nil {
		return systemtasks.Misfit("request: " + err.Error())
	}
	message := dynamicpb.NewMessage(c.method.desc.Input())
	if err := (protojson.UnmarshalOptions{Resolver: c.method.types}).Unmarshal(text, message); err != nil {
		return systemtasks.Misfit(fmt.Sprintf("request does not fit %s: %s", c.method.desc.Input().FullName(), plainError(err)))
	}
	if proto.Size(message) > maxRequest {
		return systemtasks.Refused("the request message is larger than 6 MiB")
	}
	c.request = message
	c.response = dynamicpb.NewMessage(c.method.desc.Output())
	return nil
}

// plainError gives the text of an error of the protobuf library without its prefix, whose white space changes from build to build, and
// without the position, which counts in a text that nobody wrote.
func plainError(err error) string {
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	if rest, ok := strings.CutPrefix(text, "syntax error "); ok {
		text = rest
	}
	if strings.HasPrefix(text, "(line ") {
		if _, rest, ok := strings.Cut(text, "): "); ok {
			return rest
		}
	}
	return text
}

// setMetadata puts the Target's and the task's metadata together, and the idempotency key unless the task sets one (contract 3.5).
func (c *call) setMetadata(ctx context.Context, in systemtasks.Call, secrets *systemtasks.Redactor) systemtasks.Outcome {
	entries := systemtasks.Entries{
		Field: "metadata", Declared: c.target.GRPC.Metadata,
		CheckName: schema.CheckMetadataName, CheckValue: schema.CheckMetadataValue,
	}
	given, failed := entries.Resolve(ctx, in, secrets)
	if failed != nil {
		return failed
	}
	c.metadata = metadata.MD{}
	hasKey := in.IdempotencyKey == ""
	for name, value := range given {
		c.metadata.Set(name, value)
		hasKey = hasKey || schema.HeaderKey(name) == "idempotency-key"
	}
	if !hasKey {
		c.metadata.Set("idempotency-key", in.IdempotencyKey)
	}
	return nil
}
