package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"nf/runtime/api"
	"nf/runtime/execution"
)

// named is a name of the command line, with its namespace.
type named struct {
	ns    string
	name  string
	given bool // the namespace was said, with the name or by -n
}

func (n named) path(parts ...string) string { return nsPath(n.ns, parts...) }

// inNamespace reads `name` or `namespace/name`, which wins over -n (contract 5.2).
func (sh *shell) inNamespace(text string) named {
	ns := sh.settings.namespace
	if before, after, ok := strings.Cut(text, "/"); ok {
		return named{before, after, true}
	}
	return named{ns.value, text, ns.from != fromBuiltIn}
}

// elsewhere adds to a 404 the other namespaces of the key that have the same name. probe gives the path that answers 200 if so.
func (sh *shell) elsewhere(c *client, n named, err error, probe func(ns string) string) error {
	refusal := refusalOf(err)
	if refusal == nil || refusal.status != http.StatusNotFound {
		return sh.apiFailure(c, err)
	}
	out := &exitError{code: exitFailed, message: refusal.Error(), cause: err}
	var found []string
	readable := sh.readable(c)
	for _, ns := range readable {
		if ns != n.ns && c.get(sh.ctx(), probe(ns), nil, nil) == nil {
			found = append(found, ns+"/"+n.name)
		}
	}
	switch {
	case len(found) > 0:
		return out.hinted("did you mean %s?", strings.Join(found, " or "))
	case len(readable) > 0 && !slices.Contains(readable, n.ns):
		return out.hinted("there is no namespace %s for this key; it has: %s", n.ns, strings.Join(readable, ", "))
	}
	return out
}

// notHere is elsewhere for an execution: its id is unique, so another namespace that has it is where it is.
func (sh *shell) notHere(c *client, n named, err error) error {
	refusal := refusalOf(err)
	if refusal == nil || refusal.status != http.StatusNotFound {
		return sh.apiFailure(c, err)
	}
	out := &exitError{code: exitFailed, message: fmt.Sprintf("execution %s does not exist in namespace %s", n.name, n.ns), cause: err}
	readable := sh.readable(c)
	for _, ns := range readable {
		if ns != n.ns && c.get(sh.ctx(), nsPath(ns, "executions", n.name), url.Values{"include": {""}}, nil) == nil {
			return out.hinted("it is in namespace %s: leave the namespace out, or give -n %s", ns, ns)
		}
	}
	if len(readable) > 0 && !slices.Contains(readable, n.ns) {
		return out.hinted("there is no namespace %s for this key; it has: %s", n.ns, strings.Join(readable, ", "))
	}
	return out
}

// maxProbed bounds the namespaces that one command looks into.
const maxProbed = 100

// readable gives the namespaces of the key, or none if it may not ask.
func (sh *shell) readable(c *client) []string {
	h, err := c.health(sh.ctx())
	if err != nil {
		return nil
	}
	return h.Namespaces[:min(len(h.Namespaces), maxProbed)]
}

// leastPrefix is how many characters of an execution id are needed.
const leastPrefix = 8

// findExecution finds an execution by its id or a unique prefix of it; without a namespace in every namespace of the key.
func (sh *shell) findExecution(c *client, text string) (named, error) {
	n := sh.inNamespace(text)
	n.name = strings.ToLower(n.name)
	_, err := execution.ParseUUID(n.name)
	whole := err == nil
	if !whole {
		if _, _, ok := idWindow(n.name); !ok {
			return n, usage("%q is not an execution id, nor the first %d or more characters of one", text, leastPrefix).hinted("nf execution list shows ids")
		}
		if len(n.name) < leastPrefix {
			return n, usage("%q is too short: give at least %d characters of the id", text, leastPrefix)
		}
	}
	if whole && n.given {
		return n, nil
	}
	namespaces := []string{n.ns}
	if !n.given {
		namespaces = sh.searched(c, n.ns)
	}
	var found []named
	for _, ns := range namespaces {
		in := named{ns, n.name, n.given}
		if whole {
			err = c.get(sh.ctx(), in.path("executions", n.name), url.Values{"include": {""}}, nil)
			if err == nil {
				return in, nil
			}
		} else {
			var ids []string
			if ids, err = c.withPrefix(sh.ctx(), ns, n.name); err == nil {
				for _, id := range ids {
					found = append(found, named{ns, id, n.given})
				}
			}
		}
		if err != nil && !skips(err) {
			return n, sh.apiFailure(c, err)
		}
	}
	switch len(found) {
	case 0:
		return n, fail("execution %s does not exist in %s", n.name, inWhich(namespaces))
	case 1:
		return found[0], nil
	}
	return n, fail("%s is the beginning of %s and of %s", n.name, found[0].name, found[1].name).hinted("give more characters")
}

func inWhich(namespaces []string) string {
	if len(namespaces) == 1 {
		return "namespace " + namespaces[0]
	}
	return "namespaces " + strings.Join(namespaces, ", ")
}

// skips says that a namespace has nothing for this key: the search goes on in the next one.
func skips(err error) bool {
	refusal := refusalOf(err)
	return refusal != nil && (refusal.status == http.StatusNotFound || refusal.status == http.StatusForbidden)
}

// searched gives the namespaces to look into, the one of the settings first.
func (sh *shell) searched(c *client, first string) []string {
	others := slices.DeleteFunc(sh.readable(c), func(ns string) bool { return ns == first })
	return append([]string{first}, others...)
}

// idWindow gives the times between which executions whose ids begin so were started: an id begins with its start in milliseconds.
func idWindow(prefix string) (from, to time.Time, ok bool) {
	const shape = "00000000-0000-0000-0000-000000000000"
	if len(prefix) > len(shape) {
		return from, to, false
	}
	for i, r := range prefix {
		if (r == '-') != (shape[i] == '-') || r != '-' && !strings.ContainsRune("0123456789abcdef", r) {
			return from, to, false
		}
	}
	digits := strings.ReplaceAll(prefix, "-", "")
	digits = digits[:min(len(digits), 12)]
	low, err1 := strconv.ParseInt(digits+strings.Repeat("0", 12-len(digits)), 16, 64)
	high, err2 := strconv.ParseInt(digits+strings.Repeat("f", 12-len(digits)), 16, 64)
	if err1 != nil || err2 != nil || high > maxStamp {
		return from, to, false
	}
	const slack = 5 * time.Second // between the id and the row's start
	return time.UnixMilli(low).Add(-slack), time.UnixMilli(high).Add(slack), true
}

// maxStamp is the end of the year 9999 in milliseconds: RFC 3339 ends there.
const maxStamp = 253_402_300_799_000

// withPrefix gives at most two ids that begin so.
func (c *client) withPrefix(ctx context.Context, ns, prefix string) ([]string, error) {
	from, to, ok := idWindow(prefix)
	if !ok {
		return nil, fmt.Errorf("%q begins no execution id", prefix)
	}
	query := url.Values{"startedAfter": {stamp(from)}, "startedBefore": {stamp(to)}, "limit": {"500"}}
	var ids []string
	err := c.pages(ctx, nsPath(ns, "executions"), query, func(items []api.Execution) bool {
		for i := range items {
			if strings.HasPrefix(items[i].ExecutionID, prefix) {
				ids = append(ids, items[i].ExecutionID)
			}
		}
		return len(ids) < 2
	})
	return ids[:min(len(ids), 2)], err
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// page is one page of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"nextCursor"`
}

// pages reads a list of executions page by page until visit has enough.
func (c *client) pages(ctx context.Context, path string, query url.Values, visit func([]api.Execution) bool) error {
	return eachPage(ctx, c, path, query, visit)
}

// eachPage reads a list page by page until visit has enough.
func eachPage[T any](ctx context.Context, c *client, path string, query url.Values, visit func([]T) bool) error {
	for {
		var p page[T]
		if err := c.get(ctx, path, query, &p); err != nil {
			return err
		}
		if !visit(p.Items) || p.Next == "" {
			return nil
		}
		query.Set("cursor", p.Next)
	}
}
