package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"nf/runtime/telemetry"
)

// live says that the process works. It never touches the database.
func (c *call) live() (any, error) { return map[string]any{"status": "ok"}, nil }

// ready says that requests can be served: the database answers, its schema fits, a generation of a project is in force (P12).
func (c *call) ready() (any, error) {
	reasons := c.s.unready(c.Context())
	if len(reasons) > 0 {
		c.status = http.StatusServiceUnavailable
		return map[string]any{"status": "unready", "reasons": reasons}, nil
	}
	return map[string]any{"status": "ok"}, nil
}

func (s *Server) unready(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var reasons []string
	status, err := s.Store.SchemaStatus(ctx)
	switch {
	case err != nil:
		return []string{"the database does not answer"}
	default:
		if misfit := status.Fits(s.Build); misfit != nil {
			reasons = append(reasons, misfit.Error())
		}
	}
	if len(s.Registry.Snapshot().Projects()) == 0 {
		reasons = append(reasons, "no generation of a project is in force: run nf apply")
	}
	return reasons
}

type projectAnswer struct {
	Project    string `json:"project"`
	Generation int64  `json:"generation"`
	Commit     string `json:"commit,omitempty"`
	State      string `json:"state"`
}

func (c *call) health() (any, error) {
	reasons := c.s.unready(c.Context())
	status := "ok"
	if c.s.Degraded != nil {
		if degraded := c.s.Degraded(); len(degraded) > 0 {
			status = "degraded"
			reasons = append(reasons, degraded...)
		}
	}
	out := map[string]any{"runner": c.s.Runner, "environment": c.s.Environment, "namespaces": c.coveredNamespaces()}
	projects := []projectAnswer{}
	states := map[string]string{}
	if c.s.Reload != nil {
		for _, st := range c.s.Reload.Status() {
			states[st.Project] = string(st.State)
		}
	}
	for _, p := range c.s.Registry.Snapshot().Projects() {
		state, hosted := states[p.Name]
		if !hosted {
			state = "ok" // in force, from elsewhere
		}
		projects = append(projects, projectAnswer{Project: p.Name, Generation: p.Generation, Commit: p.Commit, State: state})
	}
	fleet, err := c.s.Store.Fleet(c.Context())
	if err != nil {
		status, reasons = "down", append(reasons, "the database does not answer")
		out["queues"] = nil
	} else {
		out["queues"] = map[string]any{
			"ready": fleet.Ready, "delayed": fleet.Delayed, "leased": fleet.Leased, "decide": fleet.Marks,
			"decideOldestSeconds": fleet.MarkOldest, "executionsOpen": fleet.Running, "runnersAlive": fleet.RunnersAlive,
		}
		if len(projects) == 0 && status == "ok" {
			status = "down"
		}
	}
	if reasons == nil {
		reasons = []string{}
	}
	out["status"], out["reasons"], out["projects"] = status, reasons, projects
	return out, nil
}

// coveredNamespaces names the namespaces that the key covers: the command line looks for executions in them (contract 5.2).
func (c *call) coveredNamespaces() []string {
	names := []string{}
	for name, number := range c.s.Registry.Snapshot().Namespaces() {
		if c.who.AllNamespaces() || c.who.Covers(number) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Fleet reads the fleet gauges for the metrics page.
func (s *Server) fleet(ctx context.Context) (telemetry.Fleet, error) {
	f, err := s.Store.Fleet(ctx)
	if err != nil {
		return telemetry.Fleet{}, err
	}
	out := telemetry.Fleet{
		DecideDepth: float64(f.Marks), DecideOldestSeconds: f.MarkOldest, Ready: float64(f.Ready), Delayed: float64(f.Delayed),
		Leased: float64(f.Leased), TimersOverdue: float64(f.TimersOverdue), RunnersAlive: float64(f.RunnersAlive),
		ExecutionsOpen: map[string]float64{"RUNNING": float64(f.Running), "PAUSED": float64(f.Paused)},
	}
	semaphores, err := s.Store.SemaphoreList(ctx, 0)
	for _, x := range semaphores {
		out.Semaphores = append(out.Semaphores, telemetry.SemaphoreFigures{Namespace: x.Namespace, Name: x.Name, Permits: float64(x.Permits), Held: float64(x.Held)})
	}
	return out, err
}

func (c *call) metrics() (any, error) {
	for _, p := range c.s.Registry.Snapshot().Projects() {
		c.s.Metrics.AppliedGeneration.WithLabelValues(p.Name).Set(float64(p.Generation))
	}
	if c.s.Reload != nil {
		c.s.Reload.Observe()
	}
	c.s.Metrics.Handler().ServeHTTP(c.ResponseWriter, c.Request)
	return written{}, nil
}

// written says that the handler has written the answer itself.
type written struct{}

func (c *call) openapiJSON() (any, error) {
	return rawAnswer{contentType: "application/json", body: c.s.openapi}, nil
}

// docs serves the page and its two files: nothing from elsewhere, and the policy says so.
func (c *call) docs() (any, error) {
	h := c.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	switch c.pathText("file") {
	case "":
		return rawAnswer{"text/html; charset=utf-8", docsPage}, nil
	case "docs.js":
		return rawAnswer{"text/javascript; charset=utf-8", docsScript}, nil
	case "docs.css":
		return rawAnswer{"text/css; charset=utf-8", docsStyle}, nil
	}
	return nil, notFound("no such page")
}
