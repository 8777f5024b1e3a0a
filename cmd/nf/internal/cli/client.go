package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"nf/runtime/api"
)

// client speaks to the API of a runner. It follows no redirect, and is safe for concurrent use.
type client struct {
	base     string // without a slash at its end
	address  setting
	key      setting
	actor    string
	http     *http.Client
	patience time.Duration // how long a safe call is repeated while the API is away; < 0: until the context ends
	away     func(error)   // told once for each time that the API goes away; may be nil
}

const (
	// shortPatience is for calls of a person who waits at the keyboard.
	shortPatience = 2 * time.Second
	// endless patience is for what must outlive a runner: watching, workers.
	endless = -1
	// maxAnswer bounds what is read of one answer: 100 tasks with payloads of 6 MiB and their fields.
	maxAnswer = 640 << 20
	// answerWithin is how long the API may take beyond the wait that a call asks for.
	answerWithin = 60 * time.Second
)

// newClient makes the client of a command. It sends nothing.
func (sh *shell) newClient() (*client, error) {
	address, key, err := sh.settings.api(sh.c)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(address.value)
	if err != nil {
		return nil, usage("%s: %q is not a URL", address.name, address.value)
	}
	if base.Scheme == "http" && !loopback(base.Hostname()) {
		sh.say("warning: the key goes to %s without encryption; use https", base.Host)
	}
	base.User, base.RawQuery, base.Fragment = nil, "", ""
	return &client{
		base: strings.TrimRight(base.String(), "/"), address: address, key: key, actor: sh.settings.actor(), http: httpClient(), patience: shortPatience,
	}, nil
}

// httpClient connects directly to loopback and through the proxy of the environment to the rest.
func httpClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 128, IdleConnTimeout: 60 * time.Second, ForceAttemptHTTP2: true,
		},
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// connect makes the client of a command that a person waits for, and compares environments if one was named (contract 5.2).
func (sh *shell) connect() (*client, error) {
	c, err := sh.newClient()
	if err != nil {
		return nil, err
	}
	if sh.settings.output != "json" {
		sh.say("api  %s (%s)", c.base, c.address.name)
	}
	return c, sh.sameEnvironment(c)
}

// sameEnvironment refuses to send anything to a runner of another environment than the one that was named.
func (sh *shell) sameEnvironment(c *client) error {
	want := sh.settings.envName
	if want.value == "" {
		return nil
	}
	h, err := c.health(sh.ctx())
	var refusal *apiError
	if errors.As(err, &refusal) && refusal.status == http.StatusForbidden {
		return fail("%s names environment %s, and the key may not read the runner's: it lacks the scope metrics:read", want.name, want.value).
			hinted("use a key with metrics:read, or leave out %s", want.name)
	}
	if err != nil {
		return sh.apiFailure(c, err)
	}
	if h.Environment != want.value {
		return refused("the runner at %s is of environment %s, not %s (%s); nothing was sent", c.base, h.Environment, want.value, want.name)
	}
	return nil
}

// healthAnswer is what this command line reads of /v1/health.
type healthAnswer struct {
	Environment string   `json:"environment"`
	Namespaces  []string `json:"namespaces"` // those that the key covers
}

func (c *client) health(ctx context.Context) (healthAnswer, error) {
	var h healthAnswer
	return h, c.get(ctx, "/v1/health", nil, &h)
}

// ask is one request.
type ask struct {
	method string
	path   string
	query  url.Values
	body   any           // nil = none
	safe   bool          // may be sent again when nobody knows what became of it
	wait   time.Duration // that the server may take by what the request asks for
}

func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.do(ctx, ask{method: http.MethodGet, path: path, query: query, safe: true}, out)
}

// do sends a request and decodes the answer into out. A safe one is repeated while the API is away, as long as the patience lasts.
func (c *client) do(ctx context.Context, a ask, out any) error {
	body, err := encodeBody(a.body)
	if err != nil {
		return err
	}
	start, told := time.Now(), false
	for try := 0; ; try++ {
		err := c.once(ctx, a, body, out)
		var away *awayError
		if err == nil || !errors.As(err, &away) || !a.safe {
			return err
		}
		pauseFor := backOff(try, away.retryAfter)
		if c.patience >= 0 && time.Since(start)+pauseFor > c.patience {
			return err
		}
		if !told && c.away != nil {
			told = true
			c.away(err)
		}
		if !pause(ctx, pauseFor) {
			return err
		}
	}
}

// backOff is the wait before try+2: from 0.2 s, doubled up to 30 s, a fifth of it by chance; what the server asked for if that is more.
func backOff(try int, asked time.Duration) time.Duration {
	wait := min(200*time.Millisecond<<min(try, 8), maxBackOff)
	wait -= time.Duration(rand.Int64N(int64(wait)/5 + 1))
	return min(max(wait, asked), maxBackOff)
}

// maxBackOff is the longest wait between two tries (contract 5.1).
const maxBackOff = 30 * time.Second

// pause waits; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func encodeBody(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return b.Bytes(), nil
}

// once sends a request one time.
func (c *client) once(ctx context.Context, a ask, body []byte, out any) error {
	bounded, cancel := context.WithTimeout(ctx, a.wait+answerWithin)
	defer cancel()
	target := c.base + a.path
	if len(a.query) > 0 {
		target += "?" + a.query.Encode()
	}
	request, err := http.NewRequestWithContext(bounded, a.method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	request.Header.Set("X-Api-Key", c.key.value)
	request.Header.Set("User-Agent", "nf/"+Version)
	if c.actor != "" && len(c.actor) <= 255 && printable(c.actor) {
		request.Header.Set("X-Nf-Actor", c.actor)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err // the URL is told by whoever prints it
		}
		return &awayError{cause: err}
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &awayError{cause: err}
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer is over %d MiB", maxAnswer>>20)
	}
	return decodeAnswer(answer, text, out)
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func decodeAnswer(answer *http.Response, text []byte, out any) error {
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("the answer is not that of an nf API: %w", err)
		}
		return nil
	case code >= 300 && code < 400:
		return fmt.Errorf("the API answers %d, a redirect to %q; nf follows none", code, answer.Header.Get("Location"))
	default:
		refusal := &apiError{status: code}
		if json.Unmarshal(text, &refusal.body) != nil || refusal.body.Error == "" {
			refusal.body = api.ErrorBody{Message: fmt.Sprintf("the API answers %s", answer.Status)}
		}
		if n, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && n > 0 {
			refusal.retryAfter = time.Duration(min(n, 86_400)) * time.Second
		}
		if code == http.StatusServiceUnavailable || code == http.StatusBadGateway || code == http.StatusGatewayTimeout {
			return &awayError{cause: refusal, retryAfter: refusal.retryAfter}
		}
		return refusal
	}
}

// apiError is a refusal by the API.
type apiError struct {
	status     int
	body       api.ErrorBody
	retryAfter time.Duration
}

func (e *apiError) Error() string {
	text := e.body.Message
	if e.body.Error == "" {
		return text
	}
	return fmt.Sprintf("%s: %s", e.body.Error, text)
}

// is says whether the refusal has a code of contract 4.1.
func (e *apiError) is(code string) bool { return string(e.body.Error) == code }

// awayError says that the API did not answer, or that it cannot serve now.
type awayError struct {
	cause      error
	retryAfter time.Duration
}

func (e *awayError) Error() string { return e.cause.Error() }
func (e *awayError) Unwrap() error { return e.cause }

// refusalOf gives the refusal in an error, or nil.
func refusalOf(err error) *apiError {
	if refusal, ok := errors.AsType[*apiError](err); ok {
		return refusal
	}
	return nil
}

// apiFailure gives an error of the API its exit code and says what to do (contract 5.3).
func (sh *shell) apiFailure(c *client, err error) error {
	var known *exitError
	if err == nil || errors.As(err, &known) {
		return err
	}
	var away *awayError
	refusal := refusalOf(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && sh.settings.timeout > 0 && sh.ctx().Err() != nil:
		return fail("gave up after %s (--timeout)", sh.settings.timeout)
	case errors.As(err, &away) && refusal == nil:
		return fail("no answer from %s (%s): %w", c.base, c.address.name, away.cause).hinted("is a runner up? Start one with: nf dev, or nf run")
	case refusal == nil:
		return fail("%s: %w", c.base, err)
	}
	out := &exitError{code: exitOfRefusal(refusal), message: refusal.Error(), cause: err}
	switch refusal.status {
	case http.StatusUnauthorized:
		return out.hinted("the key comes from %s, the URL %s from %s", c.key.name, c.base, c.address.name)
	case http.StatusNotFound:
		if known := sh.readable(c); len(known) > 0 && !slices.Contains(known, sh.settings.namespace.value) {
			return out.hinted("namespaces of the key: %s; choose one with -n", strings.Join(known, ", "))
		}
	case http.StatusForbidden:
		return out.hinted("the key of %s needs %s", c.key.name, needs(refusal))
	case http.StatusBadRequest:
		return out.hinted("%s", findingsOf(refusal))
	case http.StatusTooManyRequests:
		if refusal.retryAfter > 0 {
			return out.hinted("try again in %s", refusal.retryAfter)
		}
	case http.StatusInternalServerError:
		return out.hinted("request id %s", refusal.body.RequestID)
	}
	return out
}

func exitOfRefusal(e *apiError) int {
	switch {
	case e.is("REVISION_CONFLICT"):
		return exitStale
	case e.is("SCHEMA_VIOLATION"):
		return exitFindings
	case e.status == http.StatusConflict || e.status == http.StatusTooManyRequests:
		return exitRefused
	case e.status == http.StatusBadRequest:
		return exitUsage
	}
	return exitFailed
}

func needs(e *apiError) string {
	text := fmt.Sprintf("the scope %v", e.body.Details["scope"])
	if ns, ok := e.body.Details["namespace"]; ok {
		text += fmt.Sprintf(" and namespace %v", ns)
	}
	return text
}

// findingsOf lists what is wrong with a request, in one line.
func findingsOf(e *apiError) string {
	var parts []string
	if list, ok := e.body.Details["findings"].([]any); ok {
		for _, item := range list {
			if m, ok := item.(map[string]any); ok {
				parts = append(parts, fmt.Sprintf("%v: %v", m["pointer"], m["message"]))
			}
		}
	}
	if len(parts) == 0 {
		if field, ok := e.body.Details["field"]; ok {
			parts = append(parts, fmt.Sprintf("at %v", field))
		}
		if expected, ok := e.body.Details["expected"]; ok {
			parts = append(parts, fmt.Sprintf("expected %v", expected))
		}
	}
	return strings.Join(parts, "; ")
}

// nsPath begins the path of a namespace.
func nsPath(ns string, parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1/ns/" + url.PathEscape(ns))
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
