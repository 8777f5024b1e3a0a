// Package telemetry names metrics and log keys, each once.
//
// Labels are bounded: no execution ids, and series per queue or definition are capped (contract 4.7).
package telemetry

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxSeries bounds the definitions that get series of their own in one process; the rest count as _other.
const maxSeries = 2000

// other is the label of everything beyond maxSeries.
const other = "_other"

// Metrics are the counters and histograms of one process. Safe for concurrent use; a nil *Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry

	ExecutionsStarted  *prometheus.CounterVec   // namespace, workflow
	ExecutionsFinished *prometheus.CounterVec   // namespace, workflow, status
	Attempts           *prometheus.CounterVec   // namespace, definition, type, status, cause
	RetriesScheduled   *prometheus.CounterVec   // namespace, definition
	RetriesRefused     *prometheus.CounterVec   // namespace, definition, cause
	Redeliveries       *prometheus.CounterVec   // definition
	DeadlineMissed     *prometheus.CounterVec   // class, policy
	Reports            *prometheus.CounterVec   // result
	LeaseRequests      *prometheus.CounterVec   // result
	Throttled          *prometheus.CounterVec   // control
	RunnerPasses       *prometheus.CounterVec   // runner, loop
	RunnerItems        *prometheus.CounterVec   // runner, loop
	RunnerErrors       *prometheus.CounterVec   // runner, loop
	Transactions       *prometheus.HistogramVec // statement
	DatabaseErrors     *prometheus.CounterVec   // class
	Requests           *prometheus.HistogramVec // route, method, code
	NotifyDegraded     *prometheus.GaugeVec     // runner
	AppliedGeneration  *prometheus.GaugeVec     // project

	Reloads             *prometheus.CounterVec // result, project
	ReloadLastSuccess   *prometheus.GaugeVec   // project
	ReloadLastSuccessAt *prometheus.GaugeVec   // project
	SourceRevision      *prometheus.GaugeVec   // project, commit
	OutOfSync           *prometheus.GaugeVec   // project
	WatchOverflow       *prometheus.CounterVec // project
	PruneRefused        *prometheus.CounterVec // project
	ProjectDegraded     *prometheus.GaugeVec   // project
	SecretsUnresolved   *prometheus.GaugeVec   // project

	mu   sync.Mutex
	seen map[string]bool
}

// New makes the metrics of a process. version and commit stand in nf_build_info.
func New(version, commit string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), seen: map[string]bool{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.ExecutionsStarted = counter("nf_executions_started_total", "Executions started.", "namespace", "workflow")
	m.ExecutionsFinished = counter("nf_executions_finished_total", "Executions that came to an end.", "namespace", "workflow", "status")
	m.Attempts = counter("nf_attempts_total", "Attempts that ended with a verdict.", "namespace", "definition", "type", "status", "cause")
	m.RetriesScheduled = counter("nf_retries_scheduled_total", "Retries scheduled.", "namespace", "definition")
	m.RetriesRefused = counter("nf_retries_refused_total", "Retries refused although attempts were left.", "namespace", "definition", "cause")
	m.Redeliveries = counter("nf_redeliveries_total", "Lost work delivered again.", "definition")
	m.DeadlineMissed = counter("nf_deadline_missed_total", "Deadlines that passed.", "class", "policy")
	m.Reports = counter("nf_reports_total", "Answers to reports.", "result")
	m.LeaseRequests = counter("nf_lease_requests_total", "Answers to lease requests.", "result")
	m.Throttled = counter("nf_throttled_total", "Lease requests that a control left short.", "control")
	m.RunnerPasses = counter("nf_runner_passes_total", "Passes of a runner's loops.", "runner", "loop")
	m.RunnerItems = counter("nf_runner_items_total", "Items that a runner's loops handled.", "runner", "loop")
	m.RunnerErrors = counter("nf_runner_errors_total", "Passes of a runner's loops that ended in an error.", "runner", "loop")
	m.Transactions = histogram("nf_db_transaction_seconds", "Duration of database transactions.", "statement")
	m.DatabaseErrors = counter("nf_db_errors_total", "Database errors by class of SQLSTATE.", "class")
	m.Requests = histogram("nf_http_request_seconds", "Duration of API requests, long polls included.", "route", "method", "code")
	m.NotifyDegraded = gauge("nf_notify_degraded", "1 while notifications do not arrive and the runner polls.", "runner")
	m.AppliedGeneration = gauge("nf_applied_generation", "Generation of the project in force.", "project")
	m.Reloads = counter("nf_reload_total", "Looks at the files of a project, by what came of them.", "result", "project")
	m.ReloadLastSuccess = gauge("nf_reload_last_success", "1 when the last look found the files in force, or put them in force.", "project")
	m.ReloadLastSuccessAt = gauge("nf_reload_last_success_timestamp_seconds", "When a look last found or put the files in force.", "project")
	m.SourceRevision = gauge("nf_source_revision_info", "What was read of the project last.", "project", "commit")
	m.OutOfSync = gauge("nf_out_of_sync_seconds", "How long the files have not been what is in force.", "project")
	m.WatchOverflow = counter("nf_watch_overflow_total", "Times that events of the file system were lost.", "project")
	m.PruneRefused = counter("nf_prune_refused_total", "Retirements that a guard refused.", "project")
	m.ProjectDegraded = gauge("nf_degraded", "1 while the files of the project are not in force on this runner.", "project")
	m.SecretsUnresolved = gauge("nf_secrets_unresolved", "Secrets in force that do not resolve on this runner.", "project")
	gauge("nf_build_info", "Build of this process.", "version", "commit").WithLabelValues(version, commit).Set(1)
	return m
}

// Register adds a collector, such as the fleet gauges that are read from the database at scrape.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Handler serves the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Name bounds a label: the name itself for the first 2,000 of a kind in this process, else _other.
func (m *Metrics) Name(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[name] {
		return name
	}
	if len(m.seen) >= maxSeries {
		return other
	}
	m.seen[name] = true
	return name
}
