// Package grpctask is the system task GRPC: one unary call with dynamic messages (contract 1.7, 2.6, 2.7; spec D.5).
//
// The messages come from the Target's compiled descriptors. Connections are kept for each address and dialled through the same guarded
// dialer as HTTP: no proxy, no service config, no retries. What gRPC would send again by itself, a request that the server
// refused unseen, is not sent again either (X17).
package grpctask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/outbound"
)

// The sizes of a call (contract 7.1).
const (
	maxRequest  = 6 << 20
	maxResponse = 5 << 20
)

// Options configures the task. Client is required: its dialer, clock and authorities are used.
type Options struct {
	Client *outbound.Client
}

// Task is the system task GRPC. It needs New, and Close at the end. Safe for concurrent use.
type Task struct {
	client  *outbound.Client
	conns   *conns
	methods *methods
}

// New makes the task.
func New(opts Options) (*Task, error) {
	if opts.Client == nil {
		return nil, errors.New("making the GRPC task: no client is given")
	}
	return &Task{client: opts.Client, conns: newConns(opts.Client), methods: newMethods()}, nil
}

// Close closes all connections. Calls under way end without an answer.
func (t *Task) Close() error { return t.conns.close() }

// Type implements systemtasks.Task.
func (*Task) Type() schema.TaskType { return schema.TypeGRPC }

// Run implements systemtasks.Task: it makes the call and judges the answer.
func (t *Task) Run(ctx context.Context, call systemtasks.Call) systemtasks.Outcome {
	secrets := &systemtasks.Redactor{}
	return systemtasks.Conclude(t.run(ctx, call, secrets), secrets)
}

// errTimeout is the cause of the end of a context whose call ran out of its own time.
var errTimeout = errors.New("the call ran out of time")

func (t *Task) run(ctx context.Context, call systemtasks.Call, secrets *systemtasks.Redactor) systemtasks.Outcome {
	if ctx.Err() != nil {
		return systemtasks.Released{}
	}
	c, failed := t.build(ctx, call, secrets)
	if failed != nil {
		return failed
	}
	conn, err := t.conns.acquire(key{address: c.target.GRPC.Address, tls: c.target.GRPC.TLS})
	if err != nil {
		return systemtasks.Refused(fmt.Sprintf("the address of the target %s cannot be dialled: %s", c.name, err))
	}
	defer t.conns.release(conn)
	timed, cancel := context.WithTimeoutCause(ctx, time.Duration(c.timeout)*time.Millisecond, errTimeout)
	defer cancel()
	trace := &trace{}
	var header, trailer metadata.MD
	err = conn.cc.Invoke(
		withTrace(metadata.NewOutgoingContext(timed, c.metadata), trace), c.method.path, c.request, c.response,
		grpc.PerRPCCredentials(trace), grpc.Header(&header), grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(maxResponse),
	)
	if err == nil {
		return c.completed(header, trailer)
	}
	switch {
	case ctx.Err() != nil:
		return systemtasks.Released{Sent: trace.sent.Load()}
	case t.ranOut(timed, err):
		return systemtasks.Failed{
			Cause:  systemtasks.CauseCallTimeout,
			Reason: fmt.Sprintf("no answer from %s within %d ms (timeoutMs)", c.where(), c.timeout),
		}
	}
	return c.failed(err, trace, conn)
}

// call is one call, ready to be made.
type call struct {
	name     string // namespace/name of the Target
	target   *schema.Target
	method   *method
	timeout  schema.Millis
	metadata metadata.MD
	request  proto.Message
	response *dynamicpb.Message
}

// where names the callee as reasons do: <target>/<method>.
func (c *call) where() string { return c.name + "/" + c.method.name }
