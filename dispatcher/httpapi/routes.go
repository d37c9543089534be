package httpapi

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"

	"github.com/penstock-run/penstock/dispatcher/internal/batch"
	"github.com/penstock-run/penstock/dispatcher/internal/bulk"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
	"github.com/penstock-run/penstock/jobs/summary"
)

// A Route is what a method and a path mean.
type Route struct {
	route.Route
	// Own: of its row it has only the roles. Else the request of the operation has a
	// field for each wildcard of the path, and for whatever else query or body have.
	Own    bool
	What   string // says what it does; "": what the row says
	Query  []Param
	Header []Param
	Body   reflect.Type // of a route of its own, if it takes one
	// Envelopes are types of content that a body may have besides application/json.
	Envelopes []string
	// Lines: the body is JSON, an object in each line, and longer than others may be.
	Lines bool
	// Answer is the type of its answer in JSON. Nil is the one of its row, unless Media
	// names another type of content.
	Answer  reflect.Type
	Media   string
	Status  int    // of its answer; 0: 200
	Example string // of its body

	name string // where that of the row is not its own
	do   func(*Server, *call, Route) error
}

// A Param is a parameter that is not a field of the operation's request.
type Param struct{ Name, Kind, What string }

// traceHeader is the header of requests from which jobs come.
var traceHeader = Param{jobs.TraceParent, "string", "The span of the sender, as W3C Trace Context has it, with tracestate beside it: the job is part of that trace, unless it names another one. What is not well-formed is ignored."}

// jobID is the header of requests that make a job.
var jobID = Param{operation.JobIDHeader, "string", "The id that the job is to have, a UUIDv7 of the sender: so it may send the request again when no answer has come, and there is one job."}

// passed is a route whose request and answer are those of an operation.
func passed(row operation.Row) Route { return Route{Route: route.Of(row), do: (*Server).pass} }

// at is a route that is none of the table of operations.
func at(method, path string, row operation.Row) route.Route {
	return route.Route{Method: method, Path: path, Row: row}
}

// Name is the route's own, in words with dashes between them.
func (route Route) Name() string { return cmp.Or(route.name, route.Row.Name) }

// AnswerType is the type of the answer in JSON, or nil, if it is something else.
func (route Route) AnswerType() reflect.Type {
	if route.Answer == nil && route.Media == "" {
		return route.Row.Answer
	}
	return route.Answer
}

// Statuses says what each status of an answer means that is no problem.
func (route Route) Statuses() map[int]string {
	all := map[int]string{cmp.Or(route.Status, http.StatusOK): "It is done."}
	switch {
	case route.Status == http.StatusSwitchingProtocols:
		all[route.Status] = "The connection is a WebSocket from here on."
	case route.Method == http.MethodGet:
		all[http.StatusOK] = "What was asked for."
	case route.Row.Name == operation.Submit.Name:
		all[http.StatusOK] = "The key belongs to a job that is kept already, or the job was only checked."
	}
	return all
}

// Sentence says what the route does.
func (route Route) Sentence() string { return cmp.Or(route.What, route.Row.Sentence) }

// Roles lists the roles that may.
func (route Route) Roles() []jobs.Role {
	all := append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...)
	return slices.DeleteFunc(all, func(role jobs.Role) bool { return route.Row.Name != "" && !route.Row.Allows(role) })
}

// Routes returns the table, in the order in which the reference lists it.
func Routes() []Route {
	return slices.Concat(jobRoutes(), bulkRoutes(), poolRoutes(), scheduleRoutes(), tokenRoutes(), webhookRoutes(), ownRoutes())
}

func jobRoutes() []Route {
	return []Route{
		{
			Route: route.Of(operation.Submit.Row), Status: 201, do: (*Server).submit, Example: `{"prompt": "Fix the failing test", "repo": {"url": "https://example.com/app.git"}, "agent": {"name": "claude"}}`,
			Answer: reflect.TypeFor[Submitted](),
			Header: []Param{{"Idempotency-Key", "string", "The job's key: the same key again is the same job, and the answer 200."}, jobID, traceHeader},
			Query: []Param{
				{"dry_run", "boolean", "Only check the job, and answer with it and its defaults. What a worker alone can tell is not checked."},
				{"wait", "duration", "Wait until the job has finished, at most 5m; the answer has its record then."},
			},
		},
		passed(operation.List.Row),
		passed(operation.Get.Row),
		passed(operation.Show.Row),
		passed(operation.Wait.Row),
		passed(operation.Result.Row),
		passed(operation.Why.Row),
		{
			Route: at("GET", "/v1/jobs/{id}/attempts", operation.Events.Row), do: (*Server).attempts, name: "attempts", Answer: reflect.TypeFor[summary.Attempts](), Own: true,
			What: "List the attempts of a job, with the worker of each, and how it ended.",
		},
		{
			Route: route.Of(operation.Events.Row), do: (*Server).events,
			Header: []Param{
				{"Accept", "string", "text/event-stream asks for a stream instead of a page: each event with its number as id, its kind as event, and itself as data. The last one, named end, says that the job has finished."},
				{"Last-Event-ID", "integer", "The number of the last event that a client of the stream has: it goes on behind that one."},
			},
		},
		{
			Route: at("GET", "/v1/jobs/{id}/log", operation.Events.Row), do: (*Server).agentLog, name: "log", Media: "text/plain", Own: true,
			What:  "Return the lines that the agent has printed, as they are stored now.",
			Query: []Param{{"after", "integer", "The number of the last event that is known."}},
		},
		{
			Route: route.Of(operation.Patch.Row), do: (*Server).patch, name: "patch", Media: "text/x-diff", Own: true,
			What: "Return the patch of a finished job, of any length; it is empty if the job changed nothing.",
		},
		passed(operation.Artifacts.Row),
		{
			Route: route.Artifact, do: (*Server).artifact, name: "artifact", Media: "application/octet-stream", Own: true,
			What:  "Return an artifact of an attempt, as a file.",
			Query: []Param{{"epoch", "integer", "The epoch of the attempt; the default is the last one."}},
		},
		{
			Route: route.Attach, do: (*Server).attach, name: "attach", Own: true, Status: http.StatusSwitchingProtocols,
			What: "Open a WebSocket with the terminals in the jail of a running job's agent: type, see, resize.",
		},
		{Route: route.Of(operation.Send.Row), do: (*Server).send},
		{
			Route: at("POST", "/v1/jobs/{id}/answer", operation.Send.Row), do: (*Server).answer, Own: true, name: "answer",
			Body: reflect.TypeFor[AnswerRequest](), Answer: operation.Send.Answer, Example: `{"options": ["Red"]}`,
			What: "Answer a question of the agent, or a request for permission.",
		},
		passed(operation.Cancel.Row),
		passed(operation.Retry.Row),
		passed(operation.Resume.Row),
		{Route: route.Of(operation.Fork.Row), Status: 201, do: (*Server).fork, Header: []Param{jobID, traceHeader}},
		passed(operation.Review.Row), passed(operation.PullRequest.Row), passed(operation.Purge.Row),
	}
}

func bulkRoutes() []Route {
	return []Route{
		{
			Route: at("POST", "/v1/jobs/bulk/cancel", operation.Cancel.Row), do: changeMany(bulk.Cancel), name: "bulk-cancel", Own: true, Body: reflect.TypeFor[bulkRequest](), Answer: reflect.TypeFor[bulkAnswer](), Example: `{"batch": "nightly-7", "expect": 12}`,
			What: "End all jobs that a selector matches, up to 200 at once. If there are more than expected, none is.", Query: []Param{{"dry_run", "boolean", "Only count them."}},
		},
		{
			Route: at("POST", "/v1/jobs/bulk/retry", operation.Retry.Row), do: changeMany(bulk.Retry), name: "bulk-retry", Own: true, Body: reflect.TypeFor[bulkRequest](), Answer: reflect.TypeFor[bulkAnswer](), Example: `{"reason": "model_rate_limited", "expect": 12}`,
			What: "Run all finished jobs again that a selector matches and that did not succeed, up to 200 at once. If there are more than expected, none is.", Query: []Param{{"dry_run", "boolean", "Only count them."}},
		},
	}
}

func poolRoutes() []Route {
	ofBatch := Route{Route: at("GET", "/v1/batches/{batch}/jobs", operation.List.Row), do: (*Server).pass}
	ofBatch.name, ofBatch.What = "batch-jobs", "List the jobs of a batch, in the order of their submission."
	return []Route{
		{
			Route: at("POST", "/v1/batches", operation.Submit.Row), do: submitBatch, name: "batch-submit", Own: true, Lines: true, Status: 201, Answer: reflect.TypeFor[batch.Submitted](),
			What: "Submit a batch: a job in each line of the body. If one is not valid, none is submitted. The same name and items again are the same jobs.",
			Query: []Param{
				{"name", "string", "The batch's name."}, {"queue", "string", "The queue of jobs that name none."}, {"agent", "string", "The agent of those."},
				{"repo", "string", "The repository of those."}, {"ref", "string", "The branch or tag of those."},
				{"dry_run", "boolean", "Only check the lines."},
			},
			Header: []Param{traceHeader},
		},
		passed(operation.BatchList.Row),
		passed(operation.BatchGet.Row),
		ofBatch,
		{
			Route: at("GET", "/v1/batches/{batch}/results", operation.Result.Row), do: batchResults, name: "batch-results", Own: true, Media: "application/jsonl",
			What: "Return the results of the jobs of a batch that have finished, one a line.",
		},
		{
			Route: at("GET", "/v1/batches/{batch}/preds", operation.Patch.Row), do: predictions, name: "batch-predictions", Own: true, Media: "application/jsonl",
			What: "Return the patches of the jobs of a batch that have finished as predictions of SWE-bench, one a line.",
		},
		{
			Route: route.Of(operation.BatchReport.Row), do: (*Server).batchReport,
			Query:  []Param{{"format", "string", "json or md: Markdown, as penstock batch report prints it. The default is json."}},
			Header: []Param{{"Accept", "string", "text/markdown asks for Markdown, too."}},
		},
		passed(operation.BatchCancel.Row),
		passed(operation.BatchPause.Row),
		passed(operation.BatchResume.Row),
		passed(operation.QueueList.Row),
		{
			Route: at("GET", "/v1/queues/{name}", operation.QueueList.Row), do: (*Server).queue, name: "queue", Own: true, Answer: reflect.TypeFor[operation.Queue](),
			What: "Count the jobs of a queue that holds some or is paused, by state.",
		},
		passed(operation.Stats.Row),
		passed(operation.QueuePause.Row),
		passed(operation.QueueResume.Row),
		{
			Route: at("POST", "/v1/queues/{name}/drain", operation.QueuePause.Row), do: drain, name: "queue-drain", Own: true, Answer: reflect.TypeFor[drained](),
			What: "Pause a queue, and wait until none of its jobs is running. The queue stays paused.", Query: []Param{{"wait", "duration", "How long to wait, at most 5m; the default is not at all."}},
		},
		passed(operation.Holds.Row),
		passed(operation.Caps.Row),
		passed(operation.Budgets.Row),
		passed(operation.Workers.Row),
		passed(operation.WorkerGet.Row),
		passed(operation.WorkerDrain.Row),
		passed(operation.WorkerResume.Row),
		passed(operation.DeadList.Row),
		passed(operation.DeadGet.Row),
		passed(operation.DeadRetry.Row),
		passed(operation.DeadDrop.Row),
	}
}

func scheduleRoutes() []Route {
	add := passed(operation.ScheduleAdd.Row)
	add.Status = 201
	return []Route{
		add,
		passed(operation.ScheduleList.Row),
		passed(operation.ScheduleGet.Row),
		passed(operation.ScheduleReplace.Row),
		passed(operation.ScheduleRemove.Row),
		passed(operation.SchedulePause.Row),
		passed(operation.ScheduleResume.Row),
		{Route: route.Of(operation.ScheduleRun.Row), Status: 201, do: (*Server).runSchedule, Header: []Param{jobID, traceHeader}},
	}
}

func tokenRoutes() []Route {
	add := passed(operation.TokenAdd.Row)
	add.Status = 201
	return []Route{
		add,
		passed(operation.TokenList.Row),
		passed(operation.TokenRemove.Row),
		passed(operation.Audit.Row),
	}
}

func webhookRoutes() []Route {
	add := passed(operation.WebhookAdd.Row)
	add.Status = 201
	return []Route{
		add,
		passed(operation.WebhookList.Row),
		passed(operation.WebhookReplace.Row),
		passed(operation.WebhookRemove.Row),
		passed(operation.WebhookTest.Row),
		passed(operation.WebhookDeliveries.Row),
		passed(operation.WebhookRedeliver.Row),
	}
}

// ownRoutes are those that ask for no operation of their own.
func ownRoutes() []Route {
	return []Route{
		{
			Route: at("POST", "/v1/events", operation.Submit.Row), do: (*Server).takeEvents, name: "cloudevents", Own: true, Answer: reflect.TypeFor[Taken](),
			What:      "Submit the job in the data of a CloudEvent, or those of a batch. A job without a key has source and id of its event as key, so the same event again is the same job.",
			Envelopes: []string{"application/cloudevents+json", "application/cloudevents-batch+json"},
			Header: []Param{
				{"ce-specversion", "string", "1.0, where the body is the event's data alone and its type application/json."},
				{"ce-id", "string", "The event's id, in that form."},
				{"ce-source", "string", "Its source, in that form."},
				{"ce-type", "string", "Its type, in that form; it may be any."},
				{"ce-traceparent", "string", "The trace that the event came about in, in that form, if the request has no traceparent."},
				traceHeader,
			},
		},
		{
			Route: route.Stream, do: (*Server).changes, name: "stream", Own: true, Media: "text/event-stream",
			What:   "Follow what changes in the pool: jobs, workers, queues, batches, schedules, dead letters, caps. Each event has its kind as name and what is different now as data; reset says to read the lists again.",
			Header: []Param{{"Last-Event-ID", "string", "The id of the last event that a client of the stream has: it goes on behind that one, if that is not long ago."}},
		},
		{
			Route: at("GET", "/v1/autoscale", operation.QueueList.Row), do: (*Server).autoscale, name: "autoscale", Answer: reflect.TypeFor[Scale](), Own: true,
			What:  "Say how many slots a queue could use now: demand is what runs and what waits for a worker, and what runs alone while the queue is paused.",
			Query: []Param{{"queue", "string", "The queue; the default is default."}},
		},
		{Route: route.Version, What: "Return the version of the server, and whose credential the request has.", do: (*Server).version, name: "version", Own: true, Answer: reflect.TypeFor[Version]()},
		{Route: at("GET", "/v1/openapi.json", operation.Row{}), What: "Return this interface as a document of OpenAPI 3.1.", do: description(openAPI), name: "openapi", Own: true, Media: "application/json"},
		{Route: at("GET", "/v1/asyncapi.json", operation.Row{}), What: "Return the interface over NATS as a document of AsyncAPI 3.0.", do: description(asyncAPI), name: "asyncapi", Own: true, Media: "application/json"},
		{
			Route: at("GET", "/v1/schemas/{name}", operation.Row{}), do: (*Server).schema, name: "schema", Own: true, Media: "application/schema+json",
			What: "Return a JSON Schema, by the name that penstock schema knows it by: job, event, result and others.",
		},
	}
}
