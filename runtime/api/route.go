package api

import (
	"net/http"

	"nf/runtime/auth"
)

// route is one row of the table that serves requests, answers /v1/openapi.json and is held to the contract by a test.
type route struct {
	method  string
	path    string // pattern of net/http; {ns} is a namespace
	scope   auth.Scope
	lease   bool // the scope is queues:lease:<queue>, judged by the handler once it knows the queues
	summary string
	query   []param
	body    []param // fields of the JSON body; nil = no body
	maxBody int64
	handle  func(*call) (any, error)
	status  int // of a success; 200 if 0
}

// param is a query parameter or a field of a body, for the OpenAPI page.
type param struct {
	name     string
	kind     string // string, integer, boolean, number, object, array, any
	required bool
	about    string
}

// Sizes of bodies. A single body may hold one payload of 6 MiB and its fields; a batch is bounded as a whole.
const (
	maxSingleBody = 6<<20 + 64<<10
	maxBatchBody  = 64 << 20
	maxSmallBody  = 64 << 10
)

// call is one request on its way.
type call struct {
	http.ResponseWriter
	*http.Request
	s         *Server
	route     *route
	requestID string
	who       auth.Principal
	ns        string // of the path, "" where it has none
	nsNo      int32
	status    int // overrides the route's
	// onWriteError is called when the answer could not be written: leases in it are given back (A4.10).
	onWriteError func()
}

// pathText reads a path value.
func (c *call) pathText(name string) string { return c.Request.PathValue(name) }
