package grpctask

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// completed makes the output of a call that ended OK.
func (c *call) completed(header, trailer metadata.MD) systemtasks.Outcome {
	text, err := protojson.MarshalOptions{Resolver: c.method.types, AllowPartial: true, EmitDefaultValues: true}.Marshal(c.response)
	if err != nil {
		return c.unreadable(plainError(err))
	}
	response, err := jsontext.Decode(text, jsontext.Limits{Depth: jsontext.MaxDepth - 1})
	if err != nil {
		return c.unreadable(err.Error())
	}
	return systemtasks.Completed{Output: map[string]any{
		"response": response,
		"code":     "OK",
		"metadata": c.metadataOut(header, trailer),
	}}
}

// unreadable is an answer that has no JSON form. The effect has happened and a repeat would not mend the shape.
func (c *call) unreadable(why string) systemtasks.Outcome {
	return systemtasks.Failed{
		Cause: systemtasks.CauseOutputInvalid, Terminal: true,
		Reason: fmt.Sprintf("the answer of %s cannot be given as JSON: %s", c.where(), why),
	}
}

// metadataOut gives headers and trailers of an answer, several values of one name joined, without what belongs to gRPC, what carries
// credentials, and names of the Target's own (contract 2.7). Binary values are base64.
func (c *call) metadataOut(header, trailer metadata.MD) map[string]any {
	dropped := map[string]bool{"set-cookie": true, "authorization": true, "proxy-authorization": true, "www-authenticate": true, "content-type": true}
	for name := range c.target.GRPC.Metadata {
		dropped[schema.HeaderKey(name)] = true
	}
	out := map[string]any{}
	for _, md := range []metadata.MD{header, trailer} {
		for _, name := range slices.Sorted(maps.Keys(md)) {
			if dropped[schema.HeaderKey(name)] || strings.HasPrefix(name, "grpc-") || strings.HasPrefix(name, ":") {
				continue
			}
			values := slices.Clone(md[name])
			if strings.HasSuffix(name, "-bin") {
				for i, v := range values {
					values[i] = base64.StdEncoding.EncodeToString([]byte(v))
				}
			}
			text := systemtasks.CleanText(strings.Join(values, ", "))
			if before, ok := out[name].(string); ok {
				text = before + ", " + text
			}
			out[name] = text
		}
	}
	return out
}

// ranOut says that a call ended because its own time did. The server knows the deadline too and may be a little ahead with
// DEADLINE_EXCEEDED.
func (t *Task) ranOut(timed context.Context, err error) bool {
	if errors.Is(context.Cause(timed), errTimeout) {
		return true
	}
	deadline, ok := timed.Deadline()
	return ok && status.Code(err) == codes.DeadlineExceeded && deadline.Sub(t.client.Now()) < deadlineSlack
}

// deadlineSlack is how far ahead of the deadline a server may say that it has passed.
const deadlineSlack = 100 * time.Millisecond

// tooLarge begins the text of the status that gRPC itself gives to a message over the limit. It has no type of its own; a test
// pins the text for the version in use.
const tooLarge = "grpc: received message"

// failed judges an error (contract 2.6).
func (c *call) failed(err error, trace *trace, conn *conn) systemtasks.Outcome {
	st := status.Convert(err)
	code := name(st.Code())
	var dialled error
	if at := conn.dialled.Load(); at != nil && !trace.written.Load() {
		dialled = *at
	}
	var blocked *outbound.BlockedError
	switch {
	case st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), tooLarge):
		return systemtasks.Refused(fmt.Sprintf("the answer of %s is larger than %d bytes", c.where(), maxResponse))
	case trace.refused.Load():
		return c.unanswered("the server refused the request before it looked at it")
	case errors.As(dialled, &blocked):
		return systemtasks.Refused(blocked.Error())
	case dialled != nil:
		return c.unanswered(outbound.Explain(dialled))
	case !trace.answered.Load():
		return c.unanswered(plainConnection(st.Message()))
	}
	failed := systemtasks.Failed{
		Cause:    systemtasks.CauseGRPCStatus,
		Reason:   fmt.Sprintf("%s from %s: %s", code, c.where(), st.Message()),
		Terminal: !retryable(st.Code()),
		Output:   map[string]any{"code": code, "message": systemtasks.CleanText(st.Message())},
	}
	if failed.Terminal {
		return failed
	}
	if wait, given, never := retryInfo(st); never {
		failed.Terminal = true
		failed.Reason += " (its RetryInfo forbids a retry)"
	} else if given {
		failed.MinWait, failed.Source = wait, systemtasks.SourceRetryInfo
	}
	return failed
}

// unanswered is a call that got no status from a server.
func (c *call) unanswered(why string) systemtasks.Outcome {
	return systemtasks.Failed{Cause: systemtasks.CauseConnectionFailed, Reason: fmt.Sprintf("no answer from %s: %s", c.where(), why)}
}

// plainConnection takes gRPC's own wrapping off the text of a connection's failure.
func plainConnection(text string) string {
	for _, wrap := range []string{"connection error: desc = ", "last connection error: ", "error reading server preface: "} {
		if _, inner, ok := strings.Cut(text, wrap); ok {
			text = inner
		}
	}
	return strings.TrimPrefix(strings.Trim(text, `"`), "transport: ")
}

// retryInfo reads google.rpc.RetryInfo of a status (contract 3.4): the longest delay, rounded up to milliseconds and at most
// 24 h; never is true if one is negative.
func retryInfo(st *status.Status) (wait schema.Millis, given, never bool) {
	for _, detail := range st.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if !detail.MessageIs(&info) || detail.UnmarshalTo(&info) != nil || info.GetRetryDelay() == nil {
			continue
		}
		delay := info.GetRetryDelay()
		if delay.GetSeconds() < 0 || delay.GetNanos() < 0 {
			return 0, false, true
		}
		wait, given = max(wait, millis(delay)), true
	}
	return wait, given, false
}

// millis rounds a delay that is not negative up to milliseconds, saturating at 24 h.
func millis(d *durationpb.Duration) schema.Millis {
	const second = int64(time.Second)
	if d.GetSeconds() > int64(systemtasks.MaxWait)/1000 || d.GetSeconds() > math.MaxInt64/second-1 {
		return systemtasks.MaxWait
	}
	ms := d.GetSeconds()*1000 + (int64(d.GetNanos())+int64(time.Millisecond)-1)/int64(time.Millisecond)
	return min(schema.Millis(ms), systemtasks.MaxWait)
}

// retryable says which codes the retry policy decides on (spec A2); all others are terminal.
func retryable(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.Aborted, codes.Canceled:
		return true
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.OK:
		return false
	}
	return true // a code that gRPC does not define counts as UNKNOWN
}

// name gives the name of a code as gRPC documents it.
func name(code codes.Code) string {
	switch code {
	case codes.OK:
		return "OK"
	case codes.Canceled:
		return "CANCELLED"
	case codes.Unknown:
		return "UNKNOWN"
	case codes.InvalidArgument:
		return "INVALID_ARGUMENT"
	case codes.DeadlineExceeded:
		return "DEADLINE_EXCEEDED"
	case codes.NotFound:
		return "NOT_FOUND"
	case codes.AlreadyExists:
		return "ALREADY_EXISTS"
	case codes.PermissionDenied:
		return "PERMISSION_DENIED"
	case codes.ResourceExhausted:
		return "RESOURCE_EXHAUSTED"
	case codes.FailedPrecondition:
		return "FAILED_PRECONDITION"
	case codes.Aborted:
		return "ABORTED"
	case codes.OutOfRange:
		return "OUT_OF_RANGE"
	case codes.Unimplemented:
		return "UNIMPLEMENTED"
	case codes.Internal:
		return "INTERNAL"
	case codes.Unavailable:
		return "UNAVAILABLE"
	case codes.DataLoss:
		return "DATA_LOSS"
	case codes.Unauthenticated:
		return "UNAUTHENTICATED"
	}
	return "UNKNOWN"
}
