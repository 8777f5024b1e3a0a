// Package api is the network door: HTTP and JSON in, the engine and the queues behind it (contract 4).
//
// A route is a row of one table; the same table serves, checks scopes, makes openapi.json and is held to the contract by a
// test. A body is read only after key, scope and route are known. A GET never writes. A 2xx on a write is sent after its commit.
package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/engine"
	"nf/runtime/queue"
	"nf/runtime/registry"
	"nf/runtime/store"
	"nf/runtime/telemetry"
)

// Deps is what the door opens to. All are required but Log.
type Deps struct {
	Store       *store.Store
	Registry    *registry.Registry
	Engine      *engine.Engine
	Queue       *queue.Queue
	Keys        *auth.Keys
	Signer      queue.Signer
	Metrics     *telemetry.Metrics
	Clock       clock.Clock
	Log         *slog.Logger
	Version     string
	Build       int64 // of this binary, held to the schema's range (P4)
	Environment string
	Runner      string // its id, for /v1/health
	// Degraded gives reasons why the runner is up but not well (files that differ, notifications that do not arrive). May be nil.
	Degraded func() []string
	// Reload are the projects whose files this runner keeps in force. Nil = it has none.
	Reload Reloader
	// Unresolved names the secrets in force that do not resolve on this runner. May be nil.
	Unresolved func() []string
}

// Server answers requests. Use it as an http.Handler; Close answers open long polls.
type Server struct {
	Deps
	mux     *http.ServeMux
	routes  []route
	openapi []byte

	closing context.Context //nolint:containedctx // ends open long polls at shutdown
	close   context.CancelFunc

	mu    sync.Mutex
	polls map[string]int // open long polls by key
}

// wildcard is a named part of a path.
var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// maxPolls bounds the open long polls of one key (contract 4.1).
const maxPolls = 1000

// New makes the handler.
func New(deps Deps) *Server {
	s := &Server{Deps: deps, mux: http.NewServeMux(), polls: map[string]int{}}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.closing, s.close = context.WithCancel(context.Background()) //nolint:forbidigo // outlives any request; Close ends it
	s.routes = s.table()
	s.openapi = openAPI(s.routes, deps.Version)
	methods, pattern := map[string][]string{}, map[string]string{}
	for i := range s.routes {
		r := &s.routes[i]
		s.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, q *http.Request) { s.serve(w, q, r) })
		shape := wildcard.ReplaceAllString(r.path, "{}") // {workflow} and {id} are one place in a path
		methods[shape], pattern[shape] = append(methods[shape], r.method), r.path
	}
	for shape, allowed := range methods {
		path := pattern[shape]
		s.mux.HandleFunc(path, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.refuse(w, requestID(q), &failure{code: codeMethodNotAllowed, message: q.Method + " is not offered here; use " + strings.Join(allowed, " or ")})
		})
	}
	_ = s.Metrics.Register(telemetry.NewFleetGauges(s.Clock, s.fleet)) // a second server of one process shares the first one's gauges
	s.mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		s.refuse(w, requestID(q), notFound("no route %s %s; see /v1/docs", q.Method, cut(q.URL.Path, 200)))
	})
	return s
}

// Close answers open long polls empty at once. New requests are still served.
func (s *Server) Close() { s.close() }

// HTTPServer gives the net/http server with the limits of contract 4.1: headers ≤ 16 KiB within 10 s, and bounded bodies.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.mux.ServeHTTP(w, r)
}

// serve runs one request through its route.
func (s *Server) serve(w http.ResponseWriter, q *http.Request, r *route) {
	start := s.Clock.Now()
	c := &call{ResponseWriter: w, Request: q, s: s, route: r, requestID: requestID(q)}
	status := http.StatusInternalServerError
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http is compared
				panic(p) //nolint:forbidigo // net/http handles it
			}
			s.Log.Error("request handler panicked", telemetry.KeyRequestID, c.requestID, telemetry.KeyRoute, r.path, telemetry.KeyError, fmt.Sprint(p), "stack", string(debug.Stack()))
			s.refuse(w, c.requestID, &failure{code: codeInternal, message: "something in nf is wrong; the request id is in its log"})
		}
		s.Metrics.Requests.WithLabelValues(r.path, r.method, strconv.Itoa(status)).Observe(s.Clock.Now().Sub(start).Seconds())
	}()
	answer, err := c.answer()
	if err != nil {
		status = s.refuse(w, c.requestID, s.classify(c, err))
		return
	}
	status = c.reply(answer)
}

// answer authenticates, authorises and handles.
func (c *call) answer() (any, error) {
	if c.route.scope != "" || c.route.lease {
		if err := c.authenticate(); err != nil {
			return nil, err
		}
		c.Header().Set("Cache-Control", "no-store")
	}
	if err := c.knownQuery(); err != nil {
		return nil, err
	}
	return c.route.handle(c)
}

// Header is that of the answer; the request's is Request.Header.
func (c *call) Header() http.Header { return c.ResponseWriter.Header() }

func (c *call) authenticate() error {
	key, err := presentedKey(c.Request)
	if err != nil {
		return err
	}
	c.who, err = c.s.Keys.Check(c.Context(), key, remoteHost(c.RemoteAddr))
	switch {
	case errors.Is(err, auth.ErrUnauthenticated):
		return &failure{code: codeUnauthenticated, message: "the key is unknown, expired or revoked; make one with nf keys create"}
	case errors.Is(err, auth.ErrTooMany):
		return &failure{code: codeLimitExceeded, message: "too many failed attempts from this address", retryAfter: 10, details: map[string]any{"retryAfterSeconds": 10}}
	case err != nil:
		return err
	}
	c.ns = c.pathText("ns")
	number, known := int32(0), false
	if c.ns != "" {
		number, known = c.s.Registry.Snapshot().Namespace(c.ns)
	}
	if c.ns != "" && !c.who.AllNamespaces() && (!known || !c.who.Covers(number)) {
		return c.insufficient(c.route.scope)
	}
	if !c.route.lease && !c.who.Has(c.route.scope) {
		return c.insufficient(c.route.scope)
	}
	if c.ns != "" && !known {
		return notFound("namespace %q does not exist", cut(c.ns, 255))
	}
	c.nsNo = number
	return nil
}

func (c *call) insufficient(scope auth.Scope) *failure {
	details := map[string]any{"scope": string(scope)}
	if c.ns != "" {
		details["namespace"] = cut(c.ns, 255)
	}
	return &failure{code: codeInsufficientScope, message: "the key lacks the scope or the namespace", details: details}
}

// presentedKey reads x-api-key or Authorization: Bearer; both and different is refused.
func presentedKey(r *http.Request) (string, error) {
	key := r.Header.Get("X-Api-Key")
	bearer, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case key != "" && isBearer && key != bearer:
		return "", &failure{code: codeUnauthenticated, message: "x-api-key and Authorization carry different keys; send one"}
	case key == "" && isBearer:
		key = bearer
	}
	if key == "" {
		return "", &failure{code: codeUnauthenticated, message: "send a key as x-api-key or Authorization: Bearer; make one with nf keys create"}
	}
	return key, nil
}

func (c *call) knownQuery() error {
	query := c.URL.Query()
	for _, name := range sortedKeys(query) {
		known := false
		names := make([]string, 0, len(c.route.query))
		for _, p := range c.route.query {
			known = known || p.name == name
			names = append(names, p.name)
		}
		if !known {
			return invalid(name, "one of: "+strings.Join(names, ", "), "unknown query parameter %q%s", cut(name, 100), nearest(name, names))
		}
	}
	return nil
}

// reply writes a success.
func (c *call) reply(answer any) int {
	status := c.status
	if status == 0 {
		status = c.route.status
	}
	if status == 0 {
		status = http.StatusOK
	}
	if _, done := answer.(written); done {
		return status
	}
	if raw, ok := answer.(rawAnswer); ok {
		c.Header().Set("Content-Type", raw.contentType)
		c.WriteHeader(status)
		_, _ = c.ResponseWriter.Write(raw.body)
		return status
	}
	c.Header().Set("Content-Type", "application/json")
	c.Header().Set("X-Request-Id", c.requestID)
	c.WriteHeader(status)
	encoder := json.NewEncoder(c.ResponseWriter)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		c.s.Log.Debug("answer not written", telemetry.KeyRequestID, c.requestID, telemetry.KeyError, err)
		if c.onWriteError != nil {
			c.onWriteError()
		}
	}
	return status
}

// rawAnswer is an answer that is not JSON of ours.
type rawAnswer struct {
	contentType string
	body        []byte
}

// refuse writes the error ErrorBody.
func (s *Server) refuse(w http.ResponseWriter, requestID string, f *failure) int {
	status := httpStatus[f.code]
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", requestID)
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(ErrorBody{Error: f.code, Message: f.message, Details: f.details, RequestID: requestID})
	return status
}

// classify turns any error into what the caller is told. What is not a failure of the caller's is logged with the request id.
func (s *Server) classify(c *call, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	var unknown *store.CommitUnknownError
	switch {
	case errors.As(err, &unknown):
		return &failure{code: codeUnavailable, message: "the database did not answer the commit; repeat with the same key or token", details: map[string]any{"outcome": "unknown"}}
	case errors.Is(err, store.ErrNotFound):
		return notFound("not found")
	case c.Context().Err() != nil: // the client has gone: nobody reads the answer
		return &failure{code: codeUnavailable, message: "the request was canceled"}
	case store.Away(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		s.Log.Warn("database away", telemetry.KeyRequestID, c.requestID, telemetry.KeyRoute, c.route.path, telemetry.KeyError, err)
		return &failure{code: codeUnavailable, message: "the database is away or busy; nothing was stored; try again", retryAfter: 1}
	}
	s.Log.Error("request failed", telemetry.KeyRequestID, c.requestID, telemetry.KeyRoute, c.route.path, telemetry.KeyError, err)
	return &failure{code: codeInternal, message: "something in nf is wrong; the request id is in its log"}
}

func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		return id
	}
	var raw [12]byte
	_, _ = rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

func remoteHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// cut bounds a text that goes back into a message.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
