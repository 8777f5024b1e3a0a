package grpctask_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"nf/schema"
	"nf/systemtasks"
	"nf/systemtasks/grpctask"
	"nf/systemtasks/outbound"
	"nf/systemtasks/taskstest"
)

const source = `
syntax = "proto3";
package billing.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";

enum Level { LEVEL_UNSPECIFIED = 0; LEVEL_HIGH = 1; }
message Line { string sku = 1; uint32 count = 2; }
message Order {
  string order_id = 1;
  int64 cents = 2;
  bool paid = 3;
  Level level = 4;
  bytes raw = 5;
  repeated Line lines = 6;
  map<string, Line> by_sku = 7;
  oneof way { string card = 8; string iban = 9; }
  optional int32 maybe = 10;
  google.protobuf.Timestamp at = 11;
  google.protobuf.Duration wait = 12;
  google.protobuf.Struct extra = 13;
  google.protobuf.Any any = 14;
  double ratio = 15;
  Order inner = 16;
}
service Billing {
  rpc Charge(Order) returns (Order);
  rpc Watch(Order) returns (stream Order);
  rpc Upload(stream Order) returns (Order);
}
service Other { rpc Nothing(Order) returns (Order); }
`

// descriptors compiles the source as the loader does: imports included, in order.
func descriptors(t *testing.T) (set []byte, service protoreflect.ServiceDescriptor) {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"billing.proto": source}),
	})}
	files, err := compiler.Compile(t.Context(), "billing.proto")
	require.NoError(t, err)
	var all descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all.File = append(all.File, protodesc.ToFileDescriptorProto(f))
	}
	add(files[0])
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(&all)
	require.NoError(t, err)
	return encoded, files[0].Services().ByName("Billing")
}

// backend is a real gRPC server whose only handler is a function over dynamic messages.
type backend struct {
	address     string
	descriptors []byte

	mu    sync.Mutex
	conns int
	calls int
}

// handler answers one call.
type handler func(ctx context.Context, md metadata.MD, in *dynamicpb.Message, out *dynamicpb.Message) error

// accepting counts connections.
type accepting struct {
	net.Listener
	b *backend
}

func (l accepting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.b.mu.Lock()
		l.b.conns++
		l.b.mu.Unlock()
	}
	return conn, err
}

func (b *backend) count() (conns, calls int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns, b.calls
}

func start(t *testing.T, on string, handle handler, opts ...grpc.ServerOption) *backend {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", on)
	require.NoError(t, err)
	set, service := descriptors(t)
	b := &backend{address: listener.Addr().String(), descriptors: set}
	method := service.Methods().ByName("Charge")
	opts = append(opts, grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		b.mu.Lock()
		b.calls++
		b.mu.Unlock()
		in, out := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(stream.Context())
		if err := handle(stream.Context(), md, in, out); err != nil {
			return err
		}
		return stream.SendMsg(out)
	}))
	server := grpc.NewServer(opts...)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(accepting{listener, b}) })
	t.Cleanup(func() { server.Stop(); running.Wait() })
	return b
}

// secure gives the option for TLS and the pool that trusts it.
func secure(t *testing.T) (grpc.ServerOption, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	config := s.TLS.Clone()
	config.NextProtos = []string{"h2"}
	return grpc.Creds(credentials.NewTLS(config)), pool
}

func set(m *dynamicpb.Message, field string, v any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOf(v))
}

func value(m *dynamicpb.Message, field string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(field)))
}

func echo(_ context.Context, _ metadata.MD, in, out *dynamicpb.Message) error {
	proto.Merge(out, in)
	return nil
}

func newTask(t *testing.T, change ...func(*outbound.Options)) *grpctask.Task {
	t.Helper()
	opts := outbound.Options{Now: time.Now}
	for _, f := range change {
		f(&opts)
	}
	client, err := outbound.New(opts)
	require.NoError(t, err)
	task, err := grpctask.New(grpctask.Options{Client: client})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, task.Close()) })
	return task
}

// target is a declared Target of a backend, without TLS.
func (b *backend) target(md map[string]schema.Secretable) *schema.Target {
	return &schema.Target{
		Metadata:       schema.Metadata{Namespace: "shared", Name: "billing"},
		GRPC:           &schema.GRPCTarget{Address: b.address, Service: "billing.v1.Billing", Descriptors: b.descriptors, Metadata: md},
		DefaultTimeout: 20_000,
	}
}

func call(to *schema.Target, input map[string]any) systemtasks.Call {
	full := map[string]any{"target": "shared/billing", "method": "Charge"}
	maps.Copy(full, input)
	return systemtasks.Call{Namespace: "orders", IdempotencyKey: "orders/0198c7a0/charge/0", Input: full, Target: to, Secrets: taskstest.Resolve}
}

func completed(t *testing.T, out systemtasks.Outcome) map[string]any {
	t.Helper()
	taskstest.Check(t, out)
	done, ok := out.(systemtasks.Completed)
	require.Truef(t, ok, "%+v", out)
	return done.Output
}

func failed(t *testing.T, out systemtasks.Outcome) systemtasks.Failed {
	t.Helper()
	taskstest.Check(t, out)
	f, ok := out.(systemtasks.Failed)
	require.Truef(t, ok, "%+v", out)
	return f
}

// frames is an HTTP/2 server by hand, for what no gRPC server would say. It gives each new stream to answer and counts them.
func frames(t *testing.T, answer func(f *http2.Framer, stream uint32)) (address string, streams func() int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	count := 0
	var running sync.WaitGroup
	var open sync.Map
	t.Cleanup(func() {
		_ = listener.Close()
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true }) //nolint:forcetypeassert // only those are in it
		running.Wait()
	})
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(conn, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
			return
		}
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					_ = f.WritePing(true, frame.Data)
				}
			case *http2.HeadersFrame:
				mu.Lock()
				count++
				mu.Unlock()
				answer(f, frame.StreamID)
			}
		}
	}
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			running.Go(func() { serve(conn) })
		}
	})
	return listener.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return count }
}

// message frames a gRPC message.
func message(body []byte) []byte {
	out := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(out[1:], uint32(len(body)))
	return append(out, body...)
}
