// Package route says by which HTTP request each operation is asked for: one row for each
// operation of [operation.All], read by the server and by its clients.
//
//	operation, request ──▶ method, path ┬─ fields that the path names
//	                                    ├─ the others: query of GET and DELETE
//	                                    └─ the others: body of POST and PUT
//
// The package holds values only.
package route

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/operation"
)

// A Route is what a method and a path mean.
type Route struct {
	Method, Path string // as [net/http.ServeMux] has them
	// Row is the operation that it asks for, and whose roles may. Without one every
	// identity may.
	Row operation.Row
}

// Routes that clients use and that ask for no operation of their own.
var (
	// Version tells a client what serves, and which role it has there.
	Version = Route{Method: "GET", Path: "/v1/version"}
	// Stream tells what changes in the pool, as server-sent events.
	Stream = Route{Method: "GET", Path: "/v1/stream", Row: operation.List.Row}
	// Artifact is an artifact of an attempt, as a file.
	Artifact = Route{Method: "GET", Path: "/v1/jobs/{id}/artifacts/{name...}", Row: operation.Show.Row}
	// Attach is a WebSocket with the terminals of a job's agent, for operators alone, as on
	// the bus. No dispatcher has a part in it.
	Attach = Route{Method: "GET", Path: "/v1/jobs/{id}/attach", Row: operation.Row{Name: "attach"}}
)

var all = []Route{
	{"POST", "/v1/jobs", operation.Submit.Row},
	{"GET", "/v1/jobs", operation.List.Row},
	{"GET", "/v1/jobs/{id}", operation.Get.Row},
	{"GET", "/v1/jobs/{id}/show", operation.Show.Row},
	{"GET", "/v1/jobs/{id}/wait", operation.Wait.Row},
	{"GET", "/v1/jobs/{id}/result", operation.Result.Row},
	{"GET", "/v1/jobs/{id}/why", operation.Why.Row},
	{"GET", "/v1/jobs/{id}/events", operation.Events.Row},
	{"GET", "/v1/jobs/{id}/patch", operation.Patch.Row},
	{"GET", "/v1/jobs/{id}/artifacts", operation.Artifacts.Row},
	{"POST", "/v1/jobs/{id}/send", operation.Send.Row},
	{"POST", "/v1/jobs/{id}/cancel", operation.Cancel.Row},
	{"POST", "/v1/jobs/{id}/retry", operation.Retry.Row},
	{"POST", "/v1/jobs/{id}/resume", operation.Resume.Row},
	{"POST", "/v1/jobs/{id}/fork", operation.Fork.Row},
	{"POST", "/v1/jobs/{id}/review", operation.Review.Row},
	{"POST", "/v1/jobs/{id}/pull-request", operation.PullRequest.Row},
	{"DELETE", "/v1/jobs/{id}", operation.Purge.Row},

	{"GET", "/v1/batches", operation.BatchList.Row},
	{"GET", "/v1/batches/{name}", operation.BatchGet.Row},
	{"GET", "/v1/batches/{name}/report", operation.BatchReport.Row},
	{"POST", "/v1/batches/{name}/cancel", operation.BatchCancel.Row},
	{"POST", "/v1/batches/{name}/pause", operation.BatchPause.Row},
	{"POST", "/v1/batches/{name}/resume", operation.BatchResume.Row},
	{"GET", "/v1/queues", operation.QueueList.Row},
	{"GET", "/v1/stats", operation.Stats.Row},
	{"POST", "/v1/queues/{name}/pause", operation.QueuePause.Row},
	{"POST", "/v1/queues/{name}/resume", operation.QueueResume.Row},
	{"GET", "/v1/holds", operation.Holds.Row},
	{"GET", "/v1/caps", operation.Caps.Row},
	{"GET", "/v1/budgets", operation.Budgets.Row},
	{"GET", "/v1/workers", operation.Workers.Row},
	{"GET", "/v1/workers/{name}", operation.WorkerGet.Row},
	{"POST", "/v1/workers/{name}/drain", operation.WorkerDrain.Row},
	{"POST", "/v1/workers/{name}/resume", operation.WorkerResume.Row},
	{"GET", "/v1/dead", operation.DeadList.Row},
	{"GET", "/v1/dead/{id}", operation.DeadGet.Row},
	{"POST", "/v1/dead/{id}/retry", operation.DeadRetry.Row},
	{"DELETE", "/v1/dead/{id}", operation.DeadDrop.Row},

	{"POST", "/v1/schedules", operation.ScheduleAdd.Row},
	{"GET", "/v1/schedules", operation.ScheduleList.Row},
	{"GET", "/v1/schedules/{name}", operation.ScheduleGet.Row},
	{"PUT", "/v1/schedules/{name}", operation.ScheduleReplace.Row},
	{"DELETE", "/v1/schedules/{name}", operation.ScheduleRemove.Row},
	{"POST", "/v1/schedules/{name}/pause", operation.SchedulePause.Row},
	{"POST", "/v1/schedules/{name}/resume", operation.ScheduleResume.Row},
	{"POST", "/v1/schedules/{name}/run", operation.ScheduleRun.Row},

	{"POST", "/v1/tokens", operation.TokenAdd.Row},
	{"GET", "/v1/tokens", operation.TokenList.Row},
	{"DELETE", "/v1/tokens/{name}", operation.TokenRemove.Row},
	{"GET", "/v1/audit", operation.Audit.Row},

	{"POST", "/v1/webhooks", operation.WebhookAdd.Row},
	{"GET", "/v1/webhooks", operation.WebhookList.Row},
	{"PUT", "/v1/webhooks/{name}", operation.WebhookReplace.Row},
	{"DELETE", "/v1/webhooks/{name}", operation.WebhookRemove.Row},
	{"POST", "/v1/webhooks/{name}/test", operation.WebhookTest.Row},
	{"GET", "/v1/webhooks/deliveries", operation.WebhookDeliveries.Row},
	{"POST", "/v1/webhooks/deliveries/{id}/redeliver", operation.WebhookRedeliver.Row},
}

// Of returns the route of an operation. One without a route has no method.
func Of(row operation.Row) Route {
	at := slices.IndexFunc(all, func(r Route) bool { return r.Row.Name == row.Name })
	if at < 0 {
		return Route{Row: row}
	}
	return all[at]
}

// Wildcards are the names in the route's path that stand for parts of it.
func (r Route) Wildcards() []string {
	var names []string
	for part := range strings.SplitSeq(r.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."))
		}
	}
	return names
}

// TakesBody reports whether a request has a body.
func (r Route) TakesBody() bool { return r.Method == "POST" || r.Method == "PUT" }
