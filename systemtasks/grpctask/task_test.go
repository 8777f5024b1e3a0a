package grpctask_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"nf/schema"
	"nf/schema/jsontext"
	"nf/systemtasks"
	"nf/systemtasks/grpctask"
	"nf/systemtasks/outbound"
	"nf/systemtasks/taskstest"
)

func num(s string) json.Number { return json.Number(s) }

func TestNewNeedsAClient(t *testing.T) {
	t.Parallel()
	_, err := grpctask.New(grpctask.Options{})
	require.Error(t, err)
}

func secretRef(prefix string) map[string]any {
	return map[string]any{"secretRef": map[string]any{"name": "psp-key", "key": "token", "prefix": prefix}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	var hanging sync.Map
	var calls atomic.Int64
	b := start(t, "127.0.0.1:0", func(ctx context.Context, md metadata.MD, in, out *dynamicpb.Message) error {
		id := value(in, "order_id").String()
		switch {
		case strings.HasPrefix(id, "hang"):
			came, _ := hanging.Load(id)
			close(came.(chan struct{})) //nolint:forcetypeassert // only those are in it
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		case strings.HasPrefix(id, "echo"):
			var all []string
			for _, name := range []string{"authorization", "x-token", "x-own"} {
				for _, v := range md.Get(name) {
					all = append(all, taskstest.Encodings(v)...)
					all = append(all, taskstest.Encodings(strings.TrimPrefix(v, "Bearer "))...)
				}
			}
			_ = grpc.SetHeader(ctx, metadata.Pairs("x-token", all[0], "x-echo", all[0], "x-echo-bin", all[0], "set-cookie", all[0]))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trail", all[3]))
			if id == "echo failure" {
				return status.Error(codes.Unavailable, strings.Join(all, " "))
			}
			set(out, "order_id", strings.Join(all, "\n"))
			set(out, "raw", []byte(all[0]))
		}
		return nil
	})
	md := map[string]schema.Secretable{"X-Token": {Secret: &schema.SecretRef{Name: "t", Key: "k"}}}
	task := newTask(t)
	for _, id := range []string{"echo", "echo failure"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			taskstest.Run(t, taskstest.Subject{
				Task: task,
				Good: func() systemtasks.Call {
					return call(b.target(nil), map[string]any{"request": map[string]any{"cents": num("1")}})
				},
				Hang: func() (systemtasks.Call, <-chan struct{}) {
					came, id := make(chan struct{}), fmt.Sprintf("hang %d", calls.Add(1))
					hanging.Store(id, came)
					return call(b.target(nil), map[string]any{"request": map[string]any{"orderId": id}}), came
				},
				Echo: func() systemtasks.Call {
					return call(b.target(md), map[string]any{"request": map[string]any{"orderId": id}, "metadata": map[string]any{"authorization": secretRef("Bearer "), "x-own": secretRef("")}})
				},
			})
		})
	}
}

// TestMessagesAsJSON: the JSON form of requests and answers, held by a golden file.
func TestMessagesAsJSON(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	var got strings.Builder
	for _, request := range []string{
		`{}`,
		`{"orderId": "a", "cents": 9007199254740993, "paid": true, "level": "LEVEL_HIGH", "raw": "aGk=", "ratio": 1.5}`,
		`{"order_id": "a", "cents": "9223372036854775807", "level": 1, "ratio": "NaN"}`,
		`{"lines": [{"sku": "x", "count": 2}, {}], "bySku": {"k": {"sku": "x"}}}`,
		`{"card": "c"}`,
		`{"iban": "", "maybe": 0}`,
		`{"at": "2026-03-04T05:06:07.5Z", "wait": "1.5s", "extra": {"a": [1, null, {"b": true}]}}`,
		`{"any": {"@type": "type.googleapis.com/billing.v1.Line", "sku": "x"}}`,
		`{"any": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "3s"}}`,
		`{"inner": {"inner": {"orderId": "é\u0000\u2028<>"}}}`,
	} {
		decoded, err := jsontext.DecodeObject([]byte(request), jsontext.Limits{})
		require.NoError(t, err)
		out := completed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": decoded})))
		require.Equal(t, "OK", out["code"])
		require.Equal(t, map[string]any{}, out["metadata"])
		text, err := jsontext.Encode(out["response"])
		require.NoError(t, err)
		fmt.Fprintf(&got, "%s\n    %s\n", request, text)
	}
	path := filepath.Join("testdata", "messages.txt")
	if os.Getenv("NF_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

func TestRequestsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	for request, want := range map[string]string{
		`{"ordrId": "a"}`:        `unknown field "ordrId"`,
		`{"lines": [{"x": 1}]}`:  `unknown field "x"`,
		`{"cents": 1.5}`:         `invalid value for int64 field cents: 1.5`,
		`{"cents": "x"}`:         `invalid value for int64 field cents: "x"`,
		`{"cents": 1e30}`:        `invalid value for int64 field cents: 1e30`,
		`{"paid": "yes"}`:        `invalid value for bool field paid: "yes"`,
		`{"level": "LOW"}`:       `invalid value for enum field level: "LOW"`,
		`{"card":"a","iban":""}`: `oneof billing.v1.Order.way is already set`,
		`{"any": {"@type": "type.googleapis.com/x.Y"}}`: `x.Y`,
		`{"raw": "***"}`: `invalid value for bytes field raw`,
	} {
		decoded, err := jsontext.DecodeObject([]byte(request), jsontext.Limits{})
		require.NoError(t, err)
		out := failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": decoded})))
		require.Equal(t, systemtasks.CauseInputInvalid, out.Cause, request)
		require.True(t, out.Terminal)
		require.Contains(t, out.Reason, want)
		require.NotContains(t, out.Reason, "line 1")
		require.True(t, strings.HasPrefix(out.Reason, "input does not fit: request does not fit billing.v1.Order: "), out.Reason)
	}
	_, calls := b.count()
	require.Zero(t, calls)
}

func TestInputsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	refused, misfit := systemtasks.CauseInvalidRequest, systemtasks.CauseInputInvalid
	md := func(name string, v any) map[string]any { return map[string]any{"metadata": map[string]any{name: v}} }
	type row struct {
		input map[string]any
		cause string
	}
	rows := map[string]row{
		"address in the task": {map[string]any{"address": "x:1"}, misfit},
		"host in the task":    {map[string]any{"host": "x"}, misfit},
		"service in the task": {map[string]any{"service": "x.Y"}, misfit},
		"uri in the task":     {map[string]any{"uri": "http://x"}, misfit},
		"no method":           {map[string]any{"method": nil}, misfit},
		"unknown method":      {map[string]any{"method": "Nope"}, misfit},
		"full method":         {map[string]any{"method": "billing.v1.Billing/Charge"}, misfit},
		"server stream":       {map[string]any{"method": "Watch"}, misfit},
		"client stream":       {map[string]any{"method": "Upload"}, misfit},
		"request list":        {map[string]any{"request": []any{}}, misfit},
		"request text":        {map[string]any{"request": "{}"}, misfit},
		"timeout 0":           {map[string]any{"timeoutMs": num("0")}, misfit},
		"request too large":   {map[string]any{"request": map[string]any{"orderId": strings.Repeat("x", 6<<20)}}, refused},
		"value with LF":       {md("x-a", "a\nb"), refused},
		"value not ASCII":     {md("x-a", "é"), refused},
		"value with tab":      {md("x-a", "a\tb"), refused},
		"value with DEL":      {md("x-a", "\x7f"), refused},
		"value null":          {md("x-a", nil), misfit},
		"value boolean":       {md("x-a", true), misfit},
		"the Target's name":   {md("X_Tenant", "x"), refused},
		"twice":               {map[string]any{"metadata": map[string]any{"x-a": "1", "X-A": "2"}}, refused},
		"metadata text":       {map[string]any{"metadata": "x"}, misfit},
		"name with space":     {md("a b", "x"), refused},
		"name with sign":      {md("a!b", "x"), refused},
		"name empty":          {md("", "x"), refused},
	}
	for _, name := range []string{
		":authority", ":path", ":x", "grpc-timeout", "GRPC-Status", "grpc_encoding", "te", "TE", "content-type", "Content_Type", "user-agent",
		"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer", "expect", "proxy-authorization", "x-nf-key",
	} {
		rows["name "+name] = row{md(name, "x"), refused}
	}
	to := b.target(map[string]schema.Secretable{"x-tenant": {Text: "t"}})
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := failed(t, task.Run(t.Context(), call(to, c.input)))
			require.Equal(t, c.cause, out.Cause, out.Reason)
			require.True(t, out.Terminal)
		})
	}
	t.Cleanup(func() { _, calls := b.count(); require.Zero(t, calls) })
}

func TestTargetsThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	change := func(f func(*schema.Target)) *schema.Target { to := b.target(nil); f(to); return to }
	for name, to := range map[string]*schema.Target{
		"none":               nil,
		"an HTTP target":     {HTTP: &schema.HTTPTarget{BaseURI: "http://x"}},
		"no descriptors":     change(func(x *schema.Target) { x.GRPC.Descriptors = nil }),
		"broken descriptors": change(func(x *schema.Target) { x.GRPC.Descriptors = []byte("not a descriptor set") }),
		"unknown service":    change(func(x *schema.Target) { x.GRPC.Service = "billing.v1.Nope" }),
		"message as service": change(func(x *schema.Target) { x.GRPC.Service = "billing.v1.Order" }),
		"address not one":    change(func(x *schema.Target) { x.GRPC.Address = "localhost" }),
		"unix socket":        change(func(x *schema.Target) { x.GRPC.Address = "unix:///tmp/x" }),
		"scheme":             change(func(x *schema.Target) { x.GRPC.Address = "dns:///" + b.address }),
		"metadata service":   change(func(x *schema.Target) { x.GRPC.Address = "169.254.169.254:80" }),
		"metadata, mapped":   change(func(x *schema.Target) { x.GRPC.Address = "[::ffff:169.254.169.254]:80" }),
		"unspecified":        change(func(x *schema.Target) { x.GRPC.Address = "0.0.0.0:80" }),
	} {
		out := failed(t, task.Run(t.Context(), call(to, map[string]any{})))
		require.Contains(t, []string{systemtasks.CauseInvalidRequest, systemtasks.CauseInputInvalid}, out.Cause, name+": "+out.Reason)
		require.True(t, out.Terminal, name)
	}
	_, calls := b.count()
	require.Zero(t, calls)
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	got := make(chan metadata.MD, 2)
	b := start(t, "127.0.0.1:0", func(ctx context.Context, md metadata.MD, _, _ *dynamicpb.Message) error {
		got <- md
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-both", "h", "x-many", "1", "x-many", "2", "x-bin", "\xff\x00", "x_tenant", "no", "www-authenticate", "no"))
		return grpc.SetTrailer(ctx, metadata.Pairs("x-both", "t", "authorization", "no"))
	})
	task := newTask(t)
	to := b.target(map[string]schema.Secretable{"X-Tenant": {Text: "t1"}})
	c := call(to, map[string]any{"metadata": map[string]any{"X-Own": "mine", "x-number": num("1.50")}})
	out := completed(t, task.Run(t.Context(), c))
	md := <-got
	require.Equal(t, []string{"t1"}, md.Get("x-tenant"))
	require.Equal(t, []string{"mine"}, md.Get("x-own"))
	require.Equal(t, []string{"1.50"}, md.Get("x-number"))
	require.Equal(t, []string{"orders/0198c7a0/charge/0"}, md.Get("idempotency-key"))
	require.Equal(t, map[string]any{"x-both": "h, t", "x-many": "1, 2", "x-bin": "/wA="}, out["metadata"])

	completed(t, task.Run(t.Context(), call(to, map[string]any{"metadata": map[string]any{"Idempotency-Key": "own"}})))
	require.Equal(t, []string{"own"}, (<-got).Get("idempotency-key"))
}

// TestCodes holds contract 2.6 row by row.
func TestCodes(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", func(_ context.Context, _ metadata.MD, in, _ *dynamicpb.Message) error {
		return status.Error(codes.Code(uint32(value(in, "cents").Int())), "because")
	})
	task := newTask(t)
	for code, want := range map[int]struct {
		name  string
		retry bool
	}{
		1: {"CANCELLED", true}, 2: {"UNKNOWN", true}, 3: {"INVALID_ARGUMENT", false}, 4: {"DEADLINE_EXCEEDED", true}, 5: {"NOT_FOUND", false}, 6: {"ALREADY_EXISTS", false},
		7: {"PERMISSION_DENIED", false}, 8: {"RESOURCE_EXHAUSTED", true}, 9: {"FAILED_PRECONDITION", false}, 10: {"ABORTED", true}, 11: {"OUT_OF_RANGE", false},
		12: {"UNIMPLEMENTED", false}, 13: {"INTERNAL", true}, 14: {"UNAVAILABLE", true}, 15: {"DATA_LOSS", false}, 16: {"UNAUTHENTICATED", false}, 17: {"UNKNOWN", true}, 99: {"UNKNOWN", true},
	} {
		out := failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": map[string]any{"cents": num(strconv.Itoa(code))}})))
		require.Equal(t, systemtasks.CauseGRPCStatus, out.Cause)
		require.Equal(t, !want.retry, out.Terminal, want.name)
		require.Equal(t, want.name+" from shared/billing/Charge: because", out.Reason)
		require.Equal(t, map[string]any{"code": want.name, "message": "because"}, out.Output)
		require.Zero(t, out.MinWait)
	}
}

func TestRetryInfo(t *testing.T) {
	t.Parallel()
	details := map[string][]protoadapt.MessageV1{}
	add := func(name string, infos ...*durationpb.Duration) {
		for _, d := range infos {
			details[name] = append(details[name], protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: d}))
		}
	}
	add("2.5 s", &durationpb.Duration{Seconds: 2, Nanos: 500_000_000})
	add("1 ns", &durationpb.Duration{Nanos: 1})
	add("zero", &durationpb.Duration{})
	add("a year", &durationpb.Duration{Seconds: 31_536_000})
	add("beyond", &durationpb.Duration{Seconds: 1 << 62, Nanos: 999_999_999})
	add("negative", &durationpb.Duration{Seconds: -1})
	add("negative nanos", &durationpb.Duration{Nanos: -1})
	add("absent delay", nil)
	add("two", &durationpb.Duration{Seconds: 1}, &durationpb.Duration{Seconds: 3})
	add("one negative", &durationpb.Duration{Seconds: 5}, &durationpb.Duration{Seconds: -1})
	details["another detail"] = []protoadapt.MessageV1{protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: "x"})}
	add("terminal", &durationpb.Duration{Seconds: 5})
	b := start(t, "127.0.0.1:0", func(_ context.Context, _ metadata.MD, in, _ *dynamicpb.Message) error {
		name, code := value(in, "order_id").String(), codes.Unavailable
		if name == "terminal" {
			code = codes.NotFound
		}
		st, err := status.New(code, "later").WithDetails(details[name]...)
		if err != nil {
			return err
		}
		return st.Err()
	})
	task := newTask(t)
	for name, want := range map[string]struct {
		wait     schema.Millis
		source   string
		terminal bool
	}{
		"2.5 s": {2500, "retryInfo", false}, "1 ns": {1, "retryInfo", false}, "zero": {0, "retryInfo", false}, "a year": {86_400_000, "retryInfo", false},
		"beyond": {86_400_000, "retryInfo", false}, "negative": {0, "", true}, "negative nanos": {0, "", true}, "absent delay": {0, "", false},
		"two": {3000, "retryInfo", false}, "one negative": {0, "", true}, "another detail": {0, "", false}, "terminal": {0, "", true},
	} {
		out := failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": map[string]any{"orderId": name}})))
		require.Equal(t, systemtasks.CauseGRPCStatus, out.Cause, name)
		require.Equal(t, want.wait, out.MinWait, name)
		require.Equal(t, want.source, out.Source, name)
		require.Equal(t, want.terminal, out.Terminal, name)
	}
}

// TestAnswerOverTheLimit pins the text that gRPC itself gives, which has no type of its own.
func TestAnswerOverTheLimit(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", func(_ context.Context, _ metadata.MD, in, out *dynamicpb.Message) error {
		if value(in, "paid").Bool() {
			return status.Error(codes.ResourceExhausted, "quota")
		}
		set(out, "order_id", strings.Repeat("x", int(value(in, "cents").Int())))
		return nil
	})
	task := newTask(t)
	completed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": map[string]any{"cents": num("5000000")}})))
	out := failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": map[string]any{"cents": num("5300000")}})))
	require.Equal(t, systemtasks.CauseInvalidRequest, out.Cause, out.Reason)
	require.True(t, out.Terminal)
	out = failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"request": map[string]any{"paid": true}})))
	require.Equal(t, systemtasks.CauseGRPCStatus, out.Cause)
	require.False(t, out.Terminal)
}

func TestAnswersThatAreNoJSON(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", func(_ context.Context, _ metadata.MD, in, out *dynamicpb.Message) error {
		if value(in, "paid").Bool() {
			for m := out; value(in, "cents").Int() > 0; {
				inner := dynamicpb.NewMessage(m.Descriptor())
				set(m, "inner", inner)
				m = inner
				set(in, "cents", value(in, "cents").Int()-1)
			}
			return nil
		}
		anyMessage := dynamicpb.NewMessage(out.Descriptor().Fields().ByName("any").Message())
		set(anyMessage, "type_url", "type.googleapis.com/unknown.Type")
		set(out, "any", anyMessage)
		return nil
	})
	for _, request := range []map[string]any{{}, {"paid": true, "cents": num("300")}} {
		out := failed(t, newTask(t).Run(t.Context(), call(b.target(nil), map[string]any{"request": request})))
		require.Equal(t, systemtasks.CauseOutputInvalid, out.Cause, out.Reason)
		require.True(t, out.Terminal)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	creds, pool := secure(t)
	b := start(t, "127.0.0.1:0", echo, creds)
	plain := start(t, "127.0.0.1:0", echo)
	trusting := func(o *outbound.Options) { o.RootCAs = pool }
	overTLS := func(b *backend) *schema.Target { to := b.target(nil); to.GRPC.TLS = true; return to }
	completed(t, newTask(t, trusting).Run(t.Context(), call(overTLS(b), nil)))
	for name, out := range map[string]systemtasks.Outcome{
		"unknown authority": newTask(t).Run(t.Context(), call(overTLS(b), nil)),
		"server without":    newTask(t, trusting).Run(t.Context(), call(overTLS(plain), nil)),
		"client without":    newTask(t, trusting).Run(t.Context(), call(b.target(nil), nil)),
	} {
		f := failed(t, out)
		require.Equal(t, systemtasks.CauseConnectionFailed, f.Cause, name+": "+f.Reason)
		require.False(t, f.Terminal)
		require.True(t, strings.HasPrefix(f.Reason, "no answer from shared/billing/Charge: "), f.Reason)
	}
}

func TestOneConnectionForManyCalls(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	for range 20 {
		completed(t, task.Run(t.Context(), call(b.target(nil), nil)))
	}
	conns, calls := b.count()
	require.Equal(t, 1, conns)
	require.Equal(t, 20, calls)
}

// TestAServerThatComesBackIsCalledAtOnce: gRPC's own back-off between connections would fail calls for minutes.
func TestAServerThatComesBackIsCalledAtOnce(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	set, _ := descriptors(t)
	task := newTask(t)
	to := (&backend{address: address, descriptors: set}).target(nil)
	for range 5 {
		out := failed(t, task.Run(t.Context(), call(to, nil)))
		require.Equal(t, systemtasks.CauseConnectionFailed, out.Cause)
		require.Contains(t, out.Reason, "no answer from shared/billing/Charge")
	}
	start(t, address, echo)
	completed(t, task.Run(t.Context(), call(to, nil)))
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", func(ctx context.Context, _ metadata.MD, _, _ *dynamicpb.Message) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err() // the server sees the deadline too, and may be first
	})
	task := newTask(t)
	for range 10 {
		begun := time.Now()
		out := failed(t, task.Run(t.Context(), call(b.target(nil), map[string]any{"timeoutMs": num("100")})))
		require.Equal(t, systemtasks.CauseCallTimeout, out.Cause, out.Reason)
		require.Less(t, time.Since(begun), 3*time.Second)
		require.Equal(t, "no answer from shared/billing/Charge within 100 ms (timeoutMs)", out.Reason)
	}
}

// TestFC_064_NothingIsSentTwice: a stream that the server refuses unseen is what gRPC sends again by itself.
func TestFC_064_NothingIsSentTwice(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*http2.Framer, uint32){
		"refused stream":  func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"goaway":          func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"enhance calm":    func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeEnhanceYourCalm) },
		"cancel":          func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) },
		"protocol error":  func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeProtocol) },
		"goaway, error":   func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeInternal, []byte("x")) },
		"answer not gRPC": func(f *http2.Framer, id uint32) { headers(f, id, true, ":status", "503", "content-type", "text/html") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, streams := frames(t, refuse)
			set, _ := descriptors(t)
			out := failed(t, newTask(t).Run(t.Context(), call((&backend{address: address, descriptors: set}).target(nil), map[string]any{"timeoutMs": num("5000")})))
			require.Equal(t, systemtasks.CauseConnectionFailed, out.Cause, out.Reason)
			require.False(t, out.Terminal)
			require.Equal(t, 1, streams())
		})
	}
}

// TestPushbackAndServiceConfigAreIgnored: a server that asks for a retry within the call gets none.
func TestPushbackIsNotFollowed(t *testing.T) {
	t.Parallel()
	address, streams := frames(t, func(f *http2.Framer, id uint32) {
		headers(f, id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14", "grpc-message", "later", "grpc-retry-pushback-ms", "0")
	})
	set, _ := descriptors(t)
	out := failed(t, newTask(t).Run(t.Context(), call((&backend{address: address, descriptors: set}).target(nil), nil)))
	require.Equal(t, "UNAVAILABLE from shared/billing/Charge: later", out.Reason)
	require.Equal(t, 1, streams())
}

// TestMalformedAnswers: what is no gRPC message never becomes an output.
func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http2.Framer, uint32){
		"no status": func(f *http2.Framer, id uint32) {
			headers(f, id, false, ":status", "200", "content-type", "application/grpc")
			_ = f.WriteData(id, true, message(nil))
		},
		"bytes that are no message": func(f *http2.Framer, id uint32) {
			headers(f, id, false, ":status", "200", "content-type", "application/grpc")
			_ = f.WriteData(id, false, message([]byte{0xff, 0xff, 0xff}))
			headers(f, id, true, "grpc-status", "0")
		},
		"no message": func(f *http2.Framer, id uint32) {
			headers(f, id, false, ":status", "200", "content-type", "application/grpc")
			headers(f, id, true, "grpc-status", "0")
		},
		"half a message": func(f *http2.Framer, id uint32) {
			headers(f, id, false, ":status", "200", "content-type", "application/grpc")
			_ = f.WriteData(id, true, message([]byte("xxxx"))[:6])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := frames(t, answer)
			set, _ := descriptors(t)
			out := failed(t, newTask(t).Run(t.Context(), call((&backend{address: address, descriptors: set}).target(nil), map[string]any{"timeoutMs": num("5000")})))
			require.False(t, out.Terminal, "%+v", out)
		})
	}
}

func headers(f *http2.Framer, id uint32, end bool, pairs ...string) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
}

func TestManyTargetsDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	for i := range 300 {
		to := b.target(nil)
		to.Metadata.Name = fmt.Sprintf("billing-%d", i)
		completed(t, task.Run(t.Context(), call(to, nil)))
	}
	// A Target whose descriptors change is compiled anew.
	to := b.target(nil)
	to.GRPC.Service = "billing.v1.Other"
	require.Equal(t, systemtasks.CauseInputInvalid, failed(t, task.Run(t.Context(), call(to, nil))).Cause)
	completed(t, task.Run(t.Context(), call(b.target(nil), nil)))
}

func TestAfterCloseNothingIsCalled(t *testing.T) {
	t.Parallel()
	b := start(t, "127.0.0.1:0", echo)
	task := newTask(t)
	require.NoError(t, task.Close())
	failed(t, task.Run(t.Context(), call(b.target(nil), nil)))
	_, calls := b.count()
	require.Zero(t, calls)
}

// TestNoProxy cannot be parallel: it sets the variables that gRPC reads by default.
func TestNoProxy(t *testing.T) {
	b := start(t, "127.0.0.1:0", echo)
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	t.Setenv("NO_PROXY", "")
	completed(t, newTask(t).Run(t.Context(), call(b.target(nil), nil)))
}
