package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A job is submitted once for each key, wherever the key stands.
func TestSubmit(t *testing.T) {
	t.Parallel()
	p := open(t)
	first := p.ask(jobs.RoleSubmitter, "POST /v1/jobs", plain(t), "Idempotency-Key", "k1")
	made := want[httpapi.Submitted](t, first, http.StatusCreated)
	if made.Duplicate || first.header.Get("Location") != "/v1/jobs/"+made.ID {
		t.Errorf("submitted: %s, %v", first.body, first.header)
	}
	withKey := plain(t, func(job *jobs.Job) { job.Key = "k1" })
	for _, headers := range [][]string{nil, {"Idempotency-Key", "k1"}} {
		again := want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs", withKey, headers...), http.StatusOK)
		if again.ID != made.ID || !again.Duplicate {
			t.Errorf("again with %v: %+v", headers, again)
		}
	}
	got := p.ask(jobs.RoleSubmitter, "POST /v1/jobs", withKey, "Idempotency-Key", "k2")
	if fields := got.problem(t).Fields; got.status != http.StatusBadRequest || len(fields) != 1 || fields[0].Field != "Idempotency-Key" {
		t.Errorf("two keys: %d %s", got.status, got.body)
	}
	rec := want[jobs.Record](t, p.ask(jobs.RoleViewer, "GET /v1/jobs/"+made.ID, ""), http.StatusOK)
	if rec.State != jobs.Pending || rec.Key != "k1" || rec.Source != "http" {
		t.Errorf("the record is %+v", rec)
	}
}

// A dry run answers with the whole job, and stores nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	p := open(t)
	checked := want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs?dry_run=true", plain(t)), http.StatusOK)
	if job := checked.Job; checked.ID != "" || job == nil || job.Queue != "default" || job.Retry.MaxAttempts == 0 {
		t.Errorf("the job has no defaults: %+v", checked)
	}
	got := p.ask(jobs.RoleSubmitter, "POST /v1/jobs?dry_run=true", `{"promt":"x"}`)
	if fields := got.problem(t).Fields; got.status != http.StatusBadRequest || fields[0].Field != "promt" {
		t.Errorf("an unknown field: %d %s", got.status, got.body)
	}
	listed := want[operation.Listed](t, p.ask(jobs.RoleViewer, "GET /v1/jobs", ""), http.StatusOK)
	if len(listed.Jobs) != 0 {
		t.Errorf("dry runs have stored %d jobs", len(listed.Jobs))
	}
}

// A submission that waits has the job's record when it has finished, or when the time
// is up.
func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	p := open(t)
	made := want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs?wait=50ms", plain(t)), http.StatusCreated)
	if made.Record == nil || made.Record.State != jobs.Pending {
		t.Errorf("when the time is up: %+v", made.Record)
	}
	ended := make(chan error, 1)
	go func() { // a worker
		claim, err := p.queue.Claim(t.Context(), "w", []string{"night"})
		if err == nil {
			_, err = claim.Settle(t.Context(), jobs.Ended{Outcome: jobs.Success}, p.log.Finisher(p.store.Result))
		}
		ended <- err
	}()
	job := plain(t, func(job *jobs.Job) { job.Queue = "night" })
	made = want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs?wait=1m", job), http.StatusCreated)
	if err := <-ended; err != nil || made.Record.State != jobs.Finished || made.Record.Outcome != jobs.Success {
		t.Errorf("the job has ended with %v, and its record is %+v", err, made.Record)
	}
}

// Lists come in pages, which a program puts together by next and after.
func TestPages(t *testing.T) {
	t.Parallel()
	p := open(t)
	var wanted, got []string
	for range 5 {
		wanted = append(wanted, p.submitted())
	}
	for path := "GET /v1/jobs?limit=2&state=pending&since=2020-01-01T00:00:00Z"; ; {
		page := want[operation.Listed](t, p.ask(jobs.RoleViewer, path, ""), http.StatusOK)
		for _, rec := range page.Jobs {
			got = append(got, rec.ID)
		}
		if page.Next == "" {
			break
		}
		if len(page.Jobs) != 2 {
			t.Fatalf("a page of %d jobs, want 2", len(page.Jobs))
		}
		path = "GET /v1/jobs?limit=2&state=pending&since=2020-01-01T00:00:00Z&after=" + page.Next
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("listed %v, want %v", got, wanted)
	}
}

// What cannot be a request is refused, with the field or the parameter named.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	p := open(t)
	id := p.submitted()
	for _, c := range []struct {
		request, body string
		status        int
		field         string
	}{
		{"GET /v1/jobs?colour=red", "", 400, "colour"},
		{"GET /v1/jobs?limit=-1", "", 400, "limit"},
		{"GET /v1/jobs?limit=two", "", 400, "limit"},
		{"GET /v1/jobs?limit=1&limit=2", "", 400, "limit"},
		{"GET /v1/jobs?since=yesterday", "", 400, "since"},
		{"GET /v1/jobs?a;b=%zz", "", 400, "(query)"},
		{"GET /v1/dead?older_than=long", "", 400, "older_than"},
		{"GET /v1/jobs/" + id + "/wait?for=long", "", 400, "for"},
		{"GET /v1/jobs/" + id + "?id=other", "", 400, "id"},
		{"GET /v1/batches/b/jobs?batch=c", "", 400, "batch"},
		{"GET /v1/jobs", "{}", 400, "(body)"},
		{"POST /v1/jobs?wiat=1s", "{}", 400, "wiat"},
		{"POST /v1/jobs?wait=soon", "{}", 400, "wait"},
		{"POST /v1/jobs", "{", 400, "(job)"},
		{"POST /v1/jobs", "[]", 400, "(job)"},
		{"POST /v1/jobs", "", 400, "(job)"},
		{"POST /v1/jobs/" + id + "/retry", `{"from":"x"}`, 400, "from"},
		{"POST /v1/jobs/" + id + "/retry", `[]`, 400, "(body)"},
		{"POST /v1/jobs/" + id + "/retry", `{"id":"other"}`, 400, "id"},
		{"POST /v1/jobs/" + id + "/retry?from_salvage=true", "", 400, "from_salvage"},
		{"POST /v1/jobs/" + id + "/fork", `{"prompt":"x","count":101}`, 400, "count"},
		{"POST /v1/jobs/" + id + "/answer", `{"colour":"red"}`, 400, "colour"},
		{"GET /v1/autoscale?queue=A%20B", "", 400, "queue"},
		{"GET /v1/nothing", "", 404, ""},
		{"GET /v1/jobs/" + jobs.NewID(), "", 404, ""},
		{"GET /v1//jobs", "", 404, ""},
		{"GET /v1/dead/../jobs", "", 404, ""},
		{"GET /v1/jobs/", "", 404, ""},
		{"PUT /v1/jobs", "{}", 405, ""},
		{"GET /v1/jobs/" + id + "/result", "", 409, ""},
		{"POST /v1/jobs/" + id + "/retry", "", 409, ""},
		{"POST /v1/jobs/" + id + "/answer", `{"text":"yes"}`, 409, ""},
	} {
		got := p.ask(jobs.RoleOperator, c.request, c.body)
		problem := got.problem(t)
		field := ""
		if len(problem.Fields) > 0 {
			field = problem.Fields[0].Field
		}
		if got.status != c.status || field != c.field {
			t.Errorf("%s %s: %d %s, want %d about %q", c.request, c.body, got.status, got.body, c.status, c.field)
		}
	}
	if got := p.ask(jobs.RoleOperator, "PUT /v1/jobs", "{}"); got.header.Get("Allow") != "GET, POST" {
		t.Errorf("the methods of the path are %q", got.header.Get("Allow"))
	}
	if got := p.ask(jobs.RoleOperator, "POST /v1/jobs", "{}", "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("text: %d %s", got.status, got.body)
	}
}

// What a client does about a pool it does with HTTP alone, and what it changes names it.
func TestThePool(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := plain(t, func(job *jobs.Job) { job.Queue, job.Batch = "night", "b" })
	for range 2 {
		want[httpapi.Submitted](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs", job), http.StatusCreated)
	}
	if scale := want[httpapi.Scale](t, p.ask(jobs.RoleViewer, "GET /v1/autoscale?queue=night", ""), 200); scale != (httpapi.Scale{Queue: "night", Pending: 2, Demand: 2}) {
		t.Errorf("scale: %+v", scale)
	}
	hold := want[jobs.Hold](t, p.ask(jobs.RoleOperator, "POST /v1/queues/night/pause", `{"until":"2099-01-01T00:00:00Z"}`), 200)
	if hold.By != "token-operator" || hold.Until == nil {
		t.Errorf("the pause is %+v", hold)
	}
	if scale := want[httpapi.Scale](t, p.ask(jobs.RoleViewer, "GET /v1/autoscale?queue=night", ""), 200); scale.Demand != 0 || !scale.Paused {
		t.Errorf("scale of a queue that is paused: %+v", scale)
	}
	if scale := want[httpapi.Scale](t, p.ask(jobs.RoleViewer, "GET /v1/autoscale", ""), 200); scale != (httpapi.Scale{Queue: "default"}) {
		t.Errorf("scale of a queue without jobs: %+v", scale)
	}
	if stats := want[operation.PoolStats](t, p.ask(jobs.RoleViewer, "GET /v1/stats?queue=night&window=10m", ""), 200); stats.Pending != 2 || stats.Queues != 1 || stats.Oldest == nil || len(stats.ByQueue) != 1 || stats.ByQueue[0].Paused == nil {
		t.Errorf("stats: %+v", stats)
	}
	if q := want[operation.Queue](t, p.ask(jobs.RoleViewer, "GET /v1/queues/night", ""), 200); q.Pending != 2 || q.Paused == nil {
		t.Errorf("queue: %+v", q)
	}
	if got := p.ask(jobs.RoleViewer, "GET /v1/queues/nigth", ""); got.status != http.StatusNotFound {
		t.Errorf("a queue that is not there: %d %s", got.status, got.body)
	}
	if listed := want[operation.Listed](t, p.ask(jobs.RoleViewer, "GET /v1/batches/b/jobs?limit=1", ""), 200); len(listed.Jobs) != 1 || listed.Jobs[0].Batch != "b" || listed.Next == "" {
		t.Errorf("the jobs of the batch: %+v", listed)
	}
	if batch := want[operation.Batch](t, p.ask(jobs.RoleViewer, "GET /v1/batches/b", ""), 200); batch.Jobs != 2 {
		t.Errorf("batch: %+v", batch)
	}
	if ended := want[operation.CancelledBatch](t, p.ask(jobs.RoleOperator, "POST /v1/batches/b/cancel", ""), 200); len(ended.Jobs) != 2 || ended.Jobs[0].Cancel.By != "token-operator" {
		t.Errorf("cancelled: %+v", ended)
	}
	wanted := fmt.Sprintf(`{"cron":"0 3 * * *","job":%s}`, plain(t))
	for _, status := range []int{200, 200} {
		rec := want[calendar.Record](t, p.ask(jobs.RoleOperator, "PUT /v1/schedules/nightly", wanted), status)
		if rec.Name != "nightly" {
			t.Errorf("schedule: %+v", rec)
		}
	}
	named := strings.Replace(wanted, "{", `{"name":"nightly",`, 1)
	if got := p.ask(jobs.RoleOperator, "POST /v1/schedules", named); got.status != http.StatusBadRequest {
		t.Errorf("a schedule that is there: %d %s", got.status, got.body)
	}
	if list := want[operation.SchedulePage](t, p.ask(jobs.RoleViewer, "GET /v1/schedules", ""), 200); len(list.Schedules) != 1 || list.Next != "" {
		t.Errorf("schedules: %+v", list)
	}
	if got := p.ask(jobs.RoleOperator, "DELETE /v1/schedules/nightly", ""); got.status != http.StatusOK {
		t.Errorf("remove: %d %s", got.status, got.body)
	}
	version := want[httpapi.Version](t, p.ask(jobs.RoleViewer, "GET /v1/version", ""), 200)
	if version != (httpapi.Version{Version: "v9", Name: "token-viewer", Role: jobs.RoleViewer}) {
		t.Errorf("version: %+v", version)
	}
}

// What the server answers is what the dispatcher answers, byte by byte of its JSON.
func TestAnswersPassUnchanged(t *testing.T) {
	t.Parallel()
	p := open(t)
	id := p.submitted()
	for name, path := range map[string]string{"get": "", "show": "/show", "why": "/why", "events": "/events"} {
		msg, err := p.nc.Request("penstock.v1.api."+name, fmt.Appendf(nil, `{"id":%q}`, id), jobstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		got := p.ask(jobs.RoleViewer, "GET /v1/jobs/"+id+path, "")
		if !json.Valid([]byte(got.body)) || strings.TrimSpace(got.body) != string(msg.Data) {
			t.Errorf("%s: got %s, want %s", name, got.body, msg.Data)
		}
		if got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Cache-Control") != "no-store" || got.header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: the headers are %v", name, got.header)
		}
	}
}
