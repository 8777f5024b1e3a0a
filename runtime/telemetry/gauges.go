package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nf/runtime/clock"
)

// Fleet is what is read from the database at scrape: figures of the whole fleet, not of this process.
type Fleet struct {
	DecideDepth         float64
	DecideOldestSeconds float64
	Ready               float64
	Delayed             float64
	Leased              float64
	TimersOverdue       float64
	ExecutionsOpen      map[string]float64 // by status
	RunnersAlive        float64
	Semaphores          []SemaphoreFigures
}

// SemaphoreFigures are the permits of one semaphore.
type SemaphoreFigures struct {
	Namespace, Name string
	Permits, Held   float64
}

// FleetGauges collects the fleet gauges, asking read at most once a second.
type FleetGauges struct {
	read  func(context.Context) (Fleet, error)
	clock clock.Clock
	descs map[string]*prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	last Fleet
	ok   bool
}

// NewFleetGauges makes the collector. read is called from scrapes, one at a time.
func NewFleetGauges(c clock.Clock, read func(context.Context) (Fleet, error)) *FleetGauges {
	g := &FleetGauges{read: read, clock: c, descs: map[string]*prometheus.Desc{}}
	desc := func(name, help string, labels ...string) {
		g.descs[name] = prometheus.NewDesc(name, help, labels, nil)
	}
	desc("nf_decide_queue_depth", "Facts that no evaluation has seen.")
	desc("nf_decide_queue_oldest_seconds", "Age of the oldest of them that is due.")
	desc("nf_tasks_ready", "Attempts that wait in a queue.")
	desc("nf_tasks_delayed", "Attempts in back-off or start delay.")
	desc("nf_tasks_leased", "Attempts under way.")
	desc("nf_timers_overdue", "Timers whose time has passed by more than a second.")
	desc("nf_executions_open", "Open executions.", "status")
	desc("nf_runners_alive", "Runners that beat.")
	desc("nf_semaphore_permits", "Permits of a semaphore.", "namespace", "semaphore")
	desc("nf_semaphore_held", "Permits held.", "namespace", "semaphore")
	return g
}

// Describe implements prometheus.Collector.
func (g *FleetGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While the database is away it gives nothing, never old numbers.
func (g *FleetGauges) Collect(ch chan<- prometheus.Metric) {
	f, ok := g.fleet()
	if !ok {
		return
	}
	send := func(name string, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(g.descs[name], prometheus.GaugeValue, value, labels...)
	}
	send("nf_decide_queue_depth", f.DecideDepth)
	send("nf_decide_queue_oldest_seconds", f.DecideOldestSeconds)
	send("nf_tasks_ready", f.Ready)
	send("nf_tasks_delayed", f.Delayed)
	send("nf_tasks_leased", f.Leased)
	send("nf_timers_overdue", f.TimersOverdue)
	send("nf_runners_alive", f.RunnersAlive)
	for status, n := range f.ExecutionsOpen {
		send("nf_executions_open", n, status)
	}
	for _, s := range f.Semaphores {
		send("nf_semaphore_permits", s.Permits, s.Namespace, s.Name)
		send("nf_semaphore_held", s.Held, s.Namespace, s.Name)
	}
}

func (g *FleetGauges) fleet() (Fleet, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if !g.at.IsZero() && now.Sub(g.at) < time.Second && now.Sub(g.at) >= 0 {
		return g.last, g.ok
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) //nolint:forbidigo // a scrape hands none over
	defer cancel()
	f, err := g.read(ctx)
	g.at, g.last, g.ok = now, f, err == nil
	return f, g.ok
}
