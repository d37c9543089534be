package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/dispatcher/internal/batch"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// bulk changes jobs of batch b, or counts them.
func (p *pool) bulk(what, body string) httpapi.Bulk {
	p.t.Helper()
	return want[httpapi.Bulk](p.t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs/bulk/"+what, body), http.StatusOK)
}

// Many jobs are changed by one request, once they were counted, and each is in the audit
// log. If there are more than were counted, none is.
func TestBulk(t *testing.T) {
	t.Parallel()
	p := open(t)
	other := p.submitted()
	want[batch.Submitted](t, p.submitBatch("name=b", lines(t, "one", "two", "three")), http.StatusCreated)
	if got := p.bulk("cancel?dry_run=true", `{"batch":"b"}`); got.Matched != 3 || got.Changed != 0 {
		t.Errorf("counted: %+v", got)
	}
	refused := p.ask(jobs.RoleSubmitter, "POST /v1/jobs/bulk/cancel", `{"batch":"b","expect":2}`)
	if code := refused.problem(t).Code; refused.status != http.StatusConflict || code != "changed" {
		t.Errorf("more than expected: %d %s", refused.status, refused.body)
	}
	if got := p.bulk("cancel?dry_run=true", `{"batch":"b"}`); got.Matched != 3 {
		t.Errorf("a refused request has changed jobs: %+v", got)
	}
	if got := p.bulk("cancel", `{"batch":"b","expect":3}`); got.Changed != 3 || got.Next != "" || got.Refused != nil {
		t.Errorf("cancelled: %+v", got)
	}
	if got := p.bulk("cancel", `{"batch":"b","expect":3}`); got.Matched != 0 {
		t.Errorf("again: %+v", got)
	}
	if got := p.bulk("retry", `{"batch":"b","reason":"cancelled","outcome":"cancellation","expect":3}`); got.Changed != 3 {
		t.Errorf("brought back: %+v", got)
	}
	page := want[operation.AuditPage](t, p.ask(jobs.RoleOperator, "GET /v1/audit?who=token-submitter&operation=cancel", ""), http.StatusOK)
	if len(page.Entries) != 3 {
		t.Errorf("the audit log has %+v", page.Entries)
	}
	if rec := want[jobs.Record](t, p.ask(jobs.RoleViewer, "GET /v1/jobs/"+other, ""), http.StatusOK); rec.State != jobs.Pending {
		t.Errorf("a job that was not selected is %s", rec.State)
	}
}

// One request changes a bounded number of jobs, and says where the next one goes on.
func TestBulkGoesOn(t *testing.T) {
	t.Parallel()
	p := open(t)
	var items []string
	for n := range 203 {
		items = append(items, fmt.Sprint("item-", n))
	}
	want[batch.Submitted](t, p.submitBatch("name=b", lines(t, items...)), http.StatusCreated)
	first := p.bulk("cancel", `{"batch":"b","expect":203}`)
	if first.Matched != 203 || first.Changed != 200 || first.Next == "" {
		t.Fatalf("first %+v", first)
	}
	if behind := p.bulk("retry?dry_run=true", fmt.Sprintf(`{"batch":"b","after":%q}`, first.Next)); behind.Matched != 0 {
		t.Errorf("behind what was cancelled %+v", behind)
	}
	if rest := p.bulk("cancel", fmt.Sprintf(`{"batch":"b","expect":203,"after":%q}`, first.Next)); rest.Matched != 3 || rest.Changed != 3 || rest.Next != "" {
		t.Errorf("then %+v", rest)
	}
}

func TestBulkRefuses(t *testing.T) {
	t.Parallel()
	p := open(t)
	for body, says := range map[string]string{
		"": "not JSON", "{}": "selects all jobs", `{"expect":3}`: "selects all jobs", `{"batch":"b"}`: "expect", `{"batch":"b","expect":-1}`: "expect",
		`{"state":"done","expect":1}`: "executing", `{"outcome":"cancelled","expect":1}`: "cancellation",
		`{"batches":"b","expect":1}`: "batches", "[]": "", "\"\xff": "",
	} {
		if got := p.ask(jobs.RoleSubmitter, "POST /v1/jobs/bulk/cancel", body); got.status != http.StatusBadRequest || !strings.Contains(got.body, says) {
			t.Errorf("%q: %d %s", body, got.status, got.body)
		}
	}
	if got := p.ask(jobs.RoleViewer, "POST /v1/jobs/bulk/retry", `{"batch":"b","expect":1}`); got.status != http.StatusForbidden {
		t.Errorf("by a viewer: %d %s", got.status, got.body)
	}
}

// Drain pauses a queue, and says when none of its jobs runs.
func TestDrainAQueue(t *testing.T) {
	t.Parallel()
	p := open(t)
	if got := p.ask(jobs.RoleOperator, "POST /v1/queues/empty/drain", ""); got.status != http.StatusNotFound {
		t.Errorf("a queue that is not there: %d %s", got.status, got.body)
	}
	p.submitted()
	claim := jobstest.Claim(t, p.queue, "w")
	running := p.write(claim)
	drain := func(query string) httpapi.Drained {
		t.Helper()
		return want[httpapi.Drained](t, p.ask(jobs.RoleOperator, "POST /v1/queues/default/drain"+query, "{}"), http.StatusOK)
	}
	if got := drain(""); got.Drained || got.Running != 1 || got.Hold.Name != "default" || got.Hold.By == "" {
		t.Errorf("while a job runs: %+v", got)
	}
	done := make(chan httpapi.Drained)
	go func() { done <- drain("?wait=1m") }()
	p.finish(running)
	if got := <-done; !got.Drained || got.Running != 0 {
		t.Errorf("once it has ended: %+v", got)
	}
	if hold := want[operation.HoldList](t, p.ask(jobs.RoleViewer, "GET /v1/holds", ""), http.StatusOK); len(hold.Holds) != 1 {
		t.Errorf("the queue does not stay paused: %+v", hold)
	}
	if got := p.ask(jobs.RoleOperator, "POST /v1/queues/default/drain", `{"until":"x"}`); got.status != http.StatusBadRequest {
		t.Errorf("with a body: %d %s", got.status, got.body)
	}
}
