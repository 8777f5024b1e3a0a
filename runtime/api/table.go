package api

import (
	"net/http"

	"nf/runtime/auth"
)

var paging = []param{{name: "limit", kind: "integer", about: "1–500 (50)"}, {name: "cursor", kind: "string", about: "nextCursor of the page before"}}

// table is every route of wave 1 (contract 4.2–4.6).
func (s *Server) table() []route {
	const get, post, ns = http.MethodGet, http.MethodPost, "/v1/ns/{ns}"
	return []route{
		{method: post, path: ns + "/executions/{workflow}", scope: auth.ExecutionsStart, summary: "Start an execution", body: startBody, maxBody: maxSingleBody, handle: (*call).start},
		{
			method: post, path: ns + "/executions", scope: auth.ExecutionsStart, summary: "Start up to 500 executions, each judged by itself",
			body: []param{{name: "items", kind: "array", required: true, about: "1–500 of a start with workflow"}}, maxBody: maxBatchBody, handle: (*call).startBatch,
		},
		{
			method: get, path: ns + "/executions", scope: auth.ExecutionsRead, summary: "List executions, newest start first", handle: (*call).listExecutions,
			query: append([]param{{name: "workflow", kind: "string"}, {name: "status", kind: "string", about: "repeatable"}, {name: "startedAfter", kind: "string"}, {name: "startedBefore", kind: "string"}}, paging...),
		},
		{
			method: get, path: ns + "/executions/{id}", scope: auth.ExecutionsRead, summary: "One execution", handle: (*call).getExecution,
			query: []param{
				{name: "include", kind: "string", about: "tasks, input, output, variables, taskInputs; default: all but the inputs of tasks"},
				{name: "afterSeq", kind: "integer", about: "with waitSeconds: answers when seq is above it"},
				{name: "waitSeconds", kind: "integer", about: "0–30"},
			},
		},
		{
			method: get, path: ns + "/executions/{id}/tasks", scope: auth.ExecutionsRead, summary: "Task attempts in order", handle: (*call).listTasks,
			query: append([]param{{name: "reference", kind: "string"}, {name: "status", kind: "string", about: "repeatable"}, {name: "control", kind: "string"}}, paging...),
		},
		{method: get, path: ns + "/executions/{id}/tasks/{taskId}/logs", scope: auth.ExecutionsRead, summary: "Log lines of an attempt, oldest first", query: paging, handle: (*call).listLogs},
		{
			method: post, path: ns + "/executions/{id}/terminate", scope: auth.ExecutionsWrite, summary: "End an execution TERMINATED",
			body: []param{{name: "reason", kind: "string", about: "cut at 8 KiB"}}, maxBody: maxSmallBody, handle: (*call).terminate,
		},

		{method: post, path: ns + "/queues/{queue}/lease", lease: true, summary: "Lease tasks of a queue; long poll", body: leaseBody, maxBody: maxSmallBody, handle: (*call).lease},
		{method: post, path: ns + "/lease", lease: true, summary: "Lease tasks of several queues in rotation", body: leaseManyBody, maxBody: maxSmallBody, handle: (*call).leaseMany},
		{method: post, path: ns + "/tasks/{taskId}/heartbeat", scope: auth.TasksReport, summary: "Extend a lease", body: beatBody, maxBody: maxSmallBody, handle: (*call).heartbeat},
		{method: post, path: ns + "/tasks/{taskId}/report", scope: auth.TasksReport, summary: "Report a verdict", body: reportBody, maxBody: maxSingleBody, handle: (*call).report},
		{
			method: post, path: ns + "/tasks/{taskId}/release", scope: auth.TasksReport, summary: "Give back a task that was not begun",
			body: beatBody[:1], maxBody: maxSmallBody, handle: (*call).release,
		},
		{
			method: post, path: ns + "/tasks/{taskId}/logs", scope: auth.TasksReport, summary: "Keep log lines of an attempt", status: http.StatusAccepted,
			body:    []param{beatBody[0], {name: "logs", kind: "array", required: true, about: "1–100 of {message, level, at}"}},
			maxBody: 100*(16<<10)*6 + maxSmallBody, handle: (*call).addLogs,
		},
		{method: post, path: ns + "/tasks/heartbeat", scope: auth.TasksReport, summary: "Extend up to 100 leases", body: batchBody, maxBody: maxBatchBody, handle: (*call).heartbeat},
		{method: post, path: ns + "/tasks/report", scope: auth.TasksReport, summary: "Report up to 100 verdicts", body: batchBody, maxBody: maxBatchBody, handle: (*call).report},

		{method: get, path: ns + "/queues", scope: auth.ExecutionsRead, summary: "Queues of a namespace", handle: (*call).listQueues},
		{method: get, path: ns + "/queues/{queue}/depth", scope: auth.ExecutionsRead, summary: "What a queue holds", query: []param{{name: "exact", kind: "boolean"}}, handle: (*call).depth},
		{method: get, path: ns + "/queues/workers", scope: auth.ExecutionsRead, summary: "Workers seen in the last 24 hours", handle: (*call).listWorkers},
		{method: get, path: ns + "/semaphores", scope: auth.WorkflowsRead, summary: "Semaphores and the permits held", handle: (*call).listSemaphores},
		{method: get, path: ns + "/metadata/{kind}", scope: auth.WorkflowsRead, summary: "Objects of a kind: task-definitions, workflows, semaphores, targets", query: paging, handle: (*call).listMetadata},
		{method: get, path: ns + "/metadata/{kind}/{name}", scope: auth.WorkflowsRead, summary: "One object in force", handle: (*call).getMetadata},
		{method: get, path: ns + "/metadata/{kind}/{name}/revisions/{revision}", scope: auth.WorkflowsRead, summary: "One revision of an object", handle: (*call).getMetadata},

		{method: get, path: "/v1/health/live", summary: "200 while the process works", handle: (*call).live},
		{method: get, path: "/v1/health/ready", summary: "200 when requests can be served", handle: (*call).ready},
		{method: get, path: "/v1/health", scope: auth.MetricsRead, summary: "State of the runner and the fleet", handle: (*call).health},
		{method: get, path: "/v1/status", scope: auth.WorkflowsRead, summary: "What is in force, who runs it, and how the files fare", handle: (*call).getStatus},
		{method: post, path: "/-/reload", scope: auth.Admin, summary: "Look at the files of this runner now: 200 when they are in force, 422 with the findings when not", handle: (*call).reload},
		{method: get, path: "/v1/metrics", scope: auth.MetricsRead, summary: "Prometheus text", handle: (*call).metrics},
		{method: get, path: "/v1/openapi.json", summary: "This document", handle: (*call).openapiJSON},
		{method: get, path: "/v1/docs", summary: "The page of this document", handle: (*call).docs},
		{method: get, path: "/v1/docs/{file}", summary: "Script and style of the page", handle: (*call).docs},
	}
}
