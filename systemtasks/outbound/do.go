package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"nf/schema"
	"nf/systemtasks"
)

// The sizes of a call (contract 7.1, A2).
const (
	MaxRequestBody  = 6 << 20
	MaxResponseBody = 5 << 20
	drainLimit      = 64 << 10
)

// Request is one call. URL, headers and body have been checked against contract 2.7 where they were built.
type Request struct {
	Method  string
	URL     *url.URL
	Headers http.Header // canonical names
	Body    []byte      // nil = none
	// Exempt is the origin that may lie at a private address: the base of a Target that files own. Zero = none.
	Exempt Origin
	// MaxRedirects is how many redirects are followed: 0–10.
	MaxRedirects int
	// MaxResponseBytes bounds the body of the answer: 1–5 MiB.
	MaxResponseBytes int64
	// Timeout bounds the whole call, redirects and the reading of the body included; at least 1 ms.
	Timeout schema.Millis
}

// Response is a complete answer.
type Response struct {
	Status  int
	Headers http.Header
	Body    []byte
	URL     *url.URL // the one that answered
	Verdict Verdict
	// Unfollowed says why a redirect was not followed, "" if there is nothing to say.
	Unfollowed string
	// MinWait is the minimum wait that a retryable answer asked for; HasMinWait says whether it did.
	MinWait    schema.Millis
	HasMinWait bool
}

// Failure is a call that came to no answer.
type Failure struct {
	// Cause is CONNECTION_FAILED, CALL_TIMEOUT or INVALID_REQUEST (terminal); "" if the caller's context ended.
	Cause    string
	Reason   string
	Terminal bool
	// Sent says that a request may have left the process.
	Sent bool
}

// Released says that the caller gave the call up: there is no verdict.
func (f *Failure) Released() bool { return f.Cause == "" }

// errTimeout is the cause of the end of a context whose call ran out of its own time.
var errTimeout = errors.New("the call ran out of time")

// Do makes the call: exactly one of the results is not nil. It returns soon after ctx ends. A request with a body is sent once: a
// 307 or 308 that asks for the body again, and a 301 or 302 that asks for another PUT, PATCH or DELETE, are not followed (X17).
func (c *Client) Do(ctx context.Context, r Request) (*Response, *Failure) {
	call := &calling{client: c, request: r, where: r.URL}
	timed, cancel := context.WithTimeoutCause(ctx, time.Duration(r.Timeout)*time.Millisecond, errTimeout)
	defer cancel()
	resp, failure := call.run(timed)
	if failure == nil {
		return resp, nil
	}
	failure.Sent = call.sent.Load()
	switch {
	case ctx.Err() != nil:
		return nil, &Failure{Sent: failure.Sent}
	case !failure.Terminal && errors.Is(context.Cause(timed), errTimeout):
		return nil, &Failure{
			Cause:  systemtasks.CauseCallTimeout,
			Reason: fmt.Sprintf("no answer from %s within %d ms (timeoutMs)", Where(call.where), r.Timeout),
			Sent:   failure.Sent,
		}
	}
	return nil, failure
}

// calling is the state of one call.
type calling struct {
	client  *Client
	request Request
	sent    atomic.Bool
	where   *url.URL // of the present hop
}

// run follows the hops of a call.
func (k *calling) run(ctx context.Context) (*Response, *Failure) {
	r := k.request
	origin, err := OriginOf(r.URL)
	if err != nil {
		return nil, k.refused(err.Error())
	}
	if int64(len(r.Body)) > MaxRequestBody {
		return nil, k.refused("the body of the request is larger than 6 MiB")
	}
	h := hop{method: r.Method, url: canonicalURL(r.URL, origin), origin: origin, headers: r.Headers, body: r.Body}
	for followed := 0; ; followed++ {
		k.where = h.url
		h.exempt = r.Exempt == h.origin
		resp, err := k.client.send(ctx, h, &k.sent)
		if err != nil {
			return nil, k.unanswered(err)
		}
		next, why := follow(h, resp)
		if next == nil {
			return k.read(resp, why)
		}
		discard(resp)
		if followed >= r.MaxRedirects {
			return nil, k.refused(fmt.Sprintf("more than %d redirects", r.MaxRedirects))
		}
		if next.origin, err = OriginOf(next.url); err != nil {
			return nil, k.refused("redirected to where no call may go: " + err.Error())
		}
		if h.origin.Scheme == "https" && next.origin.Scheme == "http" {
			return nil, k.refused("redirected from https to http")
		}
		next.url = canonicalURL(next.url, next.origin)
		if next.origin == h.origin {
			next.url.User = h.url.User
		} else {
			next.headers = http.Header{"User-Agent": {UserAgent}}
		}
		h = *next
	}
}

// UserAgent is what nf calls itself unless a task sets the header.
const UserAgent = "nf"

// canonicalURL gives a copy with host, port and scheme in canonical form: what was checked is what is dialled.
func canonicalURL(u *url.URL, o Origin) *url.URL {
	out := *u
	out.Scheme, out.Host, out.Fragment, out.RawFragment = o.Scheme, o.Host, "", ""
	if strings.ContainsRune(o.Host, ':') {
		out.Host = "[" + o.Host + "]"
	}
	if (o.Scheme == "http" && o.Port != "80") || (o.Scheme == "https" && o.Port != "443") {
		out.Host = o.HostPort()
	}
	if out.Path == "" {
		out.Path = "/"
	}
	return &out
}

// refused is a call that must not be made, or not go on.
func (k *calling) refused(why string) *Failure {
	return &Failure{Cause: systemtasks.CauseInvalidRequest, Reason: fmt.Sprintf("request to %s refused: %s", Where(k.where), why), Terminal: true}
}

// unanswered is a hop that got no answer.
func (k *calling) unanswered(err error) *Failure {
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return k.refused(blocked.Error())
	}
	return &Failure{Cause: systemtasks.CauseConnectionFailed, Reason: fmt.Sprintf("no answer from %s: %s", Where(k.where), Explain(err))}
}

// follow gives the next hop of a redirect, or nil with the reason why there is none ("" if the answer is no redirect).
func follow(h hop, resp *http.Response) (*hop, string) {
	method, body := h.method, h.body
	location := resp.Header.Get("Location")
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound:
		switch method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
		case http.MethodPost: // what every client does since the first browsers
			method, body = http.MethodGet, nil
		default:
			return nil, fmt.Sprintf("it asks for %s to be sent again elsewhere, and nf sends a request with an effect once: call the final address", method)
		}
	case http.StatusSeeOther:
		if method != http.MethodHead {
			method, body = http.MethodGet, nil
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if body != nil {
			return nil, "it asks for the body to be sent again elsewhere, and nf sends a body once: call the final address"
		}
	default:
		return nil, ""
	}
	if location == "" {
		return nil, "it has no Location"
	}
	to, err := h.url.Parse(location)
	if err != nil {
		return nil, "its Location is not a URI"
	}
	to.User = nil
	headers := h.headers
	if method != h.method {
		headers = h.headers.Clone()
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Location", "Idempotency-Key"} {
			headers.Del(name)
		}
	}
	return &hop{method: method, url: to, headers: headers, body: body}, ""
}

// discard reads a little of what is left, so that the connection can be used again, and closes it.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
	_ = resp.Body.Close()
}

// read takes in the body of the final answer.
func (k *calling) read(resp *http.Response, unfollowed string) (*Response, *Failure) {
	limit := k.request.MaxResponseBytes
	defer func() { _ = resp.Body.Close() }()
	verdict := Classify(resp.StatusCode)
	out := &Response{Status: resp.StatusCode, Headers: resp.Header, URL: k.where, Verdict: verdict, Unfollowed: unfollowed}
	if verdict == Malformed && resp.StatusCode < 200 {
		return out, nil // a switched protocol has no body that would end
	}
	tooLarge := fmt.Sprintf("the body of the answer (%s) is larger than %d bytes", StatusLine(resp.StatusCode), limit)
	if resp.ContentLength > limit && k.request.Method != http.MethodHead {
		return nil, k.refused(tooLarge)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, k.unanswered(err)
	}
	if int64(len(body)) > limit {
		return nil, k.refused(tooLarge)
	}
	out.Body = body
	if verdict == Retryable {
		out.MinWait, out.HasMinWait = RetryAfter(resp.Header.Values("Retry-After"), resp.Header.Get("Date"), k.client.now())
	}
	return out, nil
}
