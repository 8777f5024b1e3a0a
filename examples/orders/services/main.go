// Command services is what the orders example calls: a small shop over HTTP and a price service over gRPC. It exists so that
// the demo has real endpoints; it is no part of nf.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

func main() {
	httpAddr := flag.String("http", "127.0.0.1:7431", "address of the shop over HTTP")
	grpcAddr := flag.String("grpc", "127.0.0.1:7432", "address of the price service over gRPC")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *httpAddr, *grpcAddr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, httpAddr, grpcAddr string) error {
	web := &http.Server{Addr: httpAddr, Handler: newShop(), ReadHeaderTimeout: 5 * time.Second}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", grpcAddr)
	if err != nil {
		return fmt.Errorf("price service: %w", err)
	}
	prices := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}))
	prices.RegisterService(&pricing, nil)
	failed := make(chan error, 2)
	go func() { failed <- web.ListenAndServe() }()
	go func() { failed <- prices.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	prices.Stop()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, web.Shutdown(end))
}

// shop answers the calls of one order. The first reservation of each order is refused with 503 and Retry-After.
type shop struct {
	mu      sync.Mutex
	refused map[string]bool
	charged map[string]string // idempotency key → receipt: a repeated charge is not made twice
}

type order struct {
	OrderID string `json:"orderId"`
}

func newShop() http.Handler {
	s := &shop{refused: map[string]bool{}, charged: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/reservations", s.reserve)
	mux.HandleFunc("POST /api/charges", s.charge)
	mux.HandleFunc("POST /api/couriers/{courier}/bookings", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusCreated, map[string]any{"courier": r.PathValue("courier"), "pickup": "today"})
	})
	mux.HandleFunc("POST /api/loyalty", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusUnprocessableEntity, map[string]any{"error": "this customer has no loyalty card"})
	})
	return mux
}

func (s *shop) reserve(w http.ResponseWriter, r *http.Request) {
	o, ok := read(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	first := !s.refused[o.OrderID]
	s.refused[o.OrderID] = true
	s.mu.Unlock()
	if first {
		w.Header().Set("Retry-After", "2")
		answer(w, http.StatusServiceUnavailable, map[string]any{"error": "the warehouse is busy"})
		return
	}
	answer(w, http.StatusOK, map[string]any{"reservationId": "res-" + o.OrderID})
}

func (s *shop) charge(w http.ResponseWriter, r *http.Request) {
	o, ok := read(w, r)
	if !ok {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	receipt, again := s.charged[key]
	if !again {
		receipt = fmt.Sprintf("receipt-%s-%d", o.OrderID, len(s.charged)+1)
		s.charged[key] = receipt
	}
	s.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"receipt": receipt, "repeated": again})
}

func read(w http.ResponseWriter, r *http.Request) (order, bool) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&o); err != nil || o.OrderID == "" {
		answer(w, http.StatusBadRequest, map[string]any{"error": "orderId is missing"})
		return o, false
	}
	return o, true
}

func answer(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// pricing is the gRPC service of proto/pricing.proto, on the wire format itself: an example needs no generated code.
var pricing = grpc.ServiceDesc{
	ServiceName: "shop.pricing.v1.Pricing",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Quote", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var raw []byte
		if err := decode(&raw); err != nil {
			return nil, err
		}
		return quote(raw)
	}}},
}

// quote prices sku (field 1) × quantity (field 2).
func quote(request []byte) ([]byte, error) {
	sku, quantity := "", uint64(0)
	for len(request) > 0 {
		number, kind, n := protowire.ConsumeTag(request)
		if n < 0 {
			return nil, status.Error(codes.InvalidArgument, "malformed request")
		}
		request = request[n:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			sku, n = protowire.ConsumeString(request)
		case number == 2 && kind == protowire.VarintType:
			quantity, n = protowire.ConsumeVarint(request)
		default:
			n = protowire.ConsumeFieldValue(number, kind, request)
		}
		if n < 0 {
			return nil, status.Error(codes.InvalidArgument, "malformed request")
		}
		request = request[n:]
	}
	if sku == "" || quantity == 0 {
		return nil, status.Error(codes.InvalidArgument, "sku and quantity are required")
	}
	reply := protowire.AppendTag(nil, 1, protowire.VarintType)
	reply = protowire.AppendVarint(reply, 1290*quantity)
	reply = protowire.AppendTag(reply, 2, protowire.BytesType)
	return protowire.AppendString(reply, "EUR"), nil
}

// rawCodec hands bytes through.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	raw, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("answer is %T, not bytes", v)
	}
	return raw, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	raw, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("request goes into %T, not bytes", v)
	}
	*raw = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }
