package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// counted counts the jobs that a request selects.
func (p *pool) counted(request operation.ListRequest) (n int) {
	p.t.Helper()
	for _, err := range p.client.List(jobstest.Context(p.t), request) {
		must(p.t, err)
		n++
	}
	return n
}

// All jobs that a filter matches are changed by a form, without JavaScript: the page counts
// them first, and changes none where there are more by then.
func TestAllThatMatch(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill()
	const list, filter = "/ui/jobs?queue=low-priority-maintenance", "queue=low-priority-maintenance"
	if body := p.page("operator", list+"&after=x&done=paused"); !strings.Contains(body, `href="/ui/bulk/jobs/cancel?`+filter+`"`) {
		t.Errorf("the list does not offer to cancel all: %s", body[strings.Index(body, "<main"):])
	}
	for _, body := range []string{p.page("viewer", list), p.page("operator", "/ui/jobs")} {
		if strings.Contains(body, "all that match") {
			t.Error("a viewer, or a list of all jobs, has all that match")
		}
	}
	asked := p.page("operator", "/ui/bulk/jobs/cancel?"+filter)
	for _, want := range []string{"<h1>Cancel 3 jobs?</h1>", "Add structured logging", `name="expect" value="3"`, `name="queue" value="low-priority-maintenance"`} {
		if !strings.Contains(asked, want) {
			t.Errorf("the question has no %s: %s", want, asked[strings.Index(asked, "<main"):])
		}
	}
	form := url.Values{"queue": {"low-priority-maintenance"}, "expect": {"2"}}
	if got := p.ask("operator", "POST /ui/bulk/jobs/cancel", form); got.status != http.StatusConflict || !strings.Contains(got.body, "None was changed") {
		t.Errorf("more than were counted: %d %s", got.status, got.body)
	}
	pending := operation.ListRequest{Queue: "low-priority-maintenance", State: jobs.Pending}
	if n := p.counted(pending); n != 3 {
		t.Errorf("%d of 3 jobs are left, and none was to be changed", n)
	}
	form.Set("expect", "3")
	if got := p.ask("operator", "POST /ui/bulk/jobs/cancel", form); got.status != http.StatusOK || !strings.Contains(got.body, "3 jobs cancelled.") {
		t.Errorf("cancelled: %d %s", got.status, got.body)
	}
	if n := p.counted(pending); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	// What the pool has no filter for selects, too; what succeeded stays as it is.
	if got := p.ask("operator", "POST /ui/bulk/jobs/retry", url.Values{"q": {"structured"}, "label": {""}, "expect": {"3"}}); !strings.Contains(got.body, "3 jobs running again.") {
		t.Errorf("retried by a text: %d %s", got.status, got.body)
	}
	if body := p.page("operator", "/ui/bulk/jobs/retry?batch=nightly-fixes"); !strings.Contains(body, "Retry 2 jobs?") {
		t.Errorf("of the batch could be retried: %s", body[strings.Index(body, "<main"):])
	}
}

// A batch offers all jobs of a reason, with their number, and its answer is that of the pool.
func TestRetryAllOfAReason(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill()
	const address = "/ui/bulk/jobs/retry?batch=nightly-fixes&amp;reason=check_failed"
	if body := p.page("operator", "/ui/batches/nightly-fixes"); !strings.Contains(body, `href="`+address+`"`) || !strings.Contains(body, "Retry all 1…") {
		t.Errorf("the batch does not offer it: %s", body[strings.Index(body, "<main"):])
	}
	if body := p.page("viewer", "/ui/batches/nightly-fixes"); strings.Contains(body, "/ui/bulk") {
		t.Error("it is offered to a viewer")
	}
	got := p.ask("operator", "POST /ui/bulk/jobs/retry", url.Values{"batch": {"nightly-fixes"}, "reason": {"check_failed"}, "expect": {"1"}})
	if !strings.Contains(got.body, "1 job running again.") || p.counted(operation.ListRequest{Batch: "nightly-fixes", Outcome: jobs.Failure}) != 0 {
		t.Errorf("retried: %d %s", got.status, got.body)
	}
}

// Dead letters are changed the same way, and the page says which could not be, and why.
func TestAllDeadLetters(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill()
	if body := p.page("operator", "/ui/dead?kind=submission"); !strings.Contains(body, `href="/ui/bulk/dead/drop?kind=submission"`) {
		t.Errorf("the list does not offer to drop all: %s", body[strings.Index(body, "<main"):])
	}
	refused := p.ask("operator", "POST /ui/bulk/dead/retry", url.Values{"kind": {"submission"}, "expect": {"1"}})
	for _, want := range []string{"0 dead letters brought back. 1 could not be changed.", "promt", "Not changed"} {
		if refused.status != http.StatusOK || !strings.Contains(refused.body, want) {
			t.Errorf("what cannot be submitted has no %q: %d %s", want, refused.status, refused.body)
		}
	}
	all := p.page("operator", "/ui/bulk/dead/drop")
	n := p.dead()
	if !strings.Contains(all, fmt.Sprintf("Drop %d dead letters?", n)) || n < 2 {
		t.Errorf("%d dead letters, and the question is: %s", n, all[strings.Index(all, "<main"):])
	}
	if got := p.ask("operator", "POST /ui/bulk/dead/drop", url.Values{"kind": {"submission"}, "expect": {"1"}}); !strings.Contains(got.body, "1 dead letter dropped.") || p.dead() != n-1 {
		t.Errorf("dropped: %d %s", got.status, got.body)
	}
}

// A form for many jobs is refused to those who may not, and so is one that selects
// everything or does not say how many.
func TestAllThatMatchRefuses(t *testing.T) {
	t.Parallel()
	p, only := open(t), open(t, func(cfg *dashboard.Config) { cfg.ReadOnly = true })
	job := p.submit()
	good := url.Values{"state": {"pending"}, "expect": {"1"}}
	for _, path := range []string{"/ui/bulk/jobs/cancel", "/ui/bulk/jobs/retry", "/ui/bulk/dead/retry", "/ui/bulk/dead/drop"} {
		for name, got := range map[string]answer{
			"a viewer": p.ask("viewer", "POST "+path, good), "a viewer asking": p.ask("viewer", "GET "+path+"?state=pending", nil),
			"an autoscaler asking": p.ask("autoscale", "GET "+path+"?state=pending", nil),
			"another origin":       p.ask("operator", "POST "+path, good, "Sec-Fetch-Site", "cross-site"), "read only": only.ask("operator", "POST "+path, good),
			"read only, asking": only.ask("operator", "GET "+path+"?state=pending", nil),
		} {
			if got.status != http.StatusForbidden {
				t.Errorf("%s at %s: %d", name, path, got.status)
			}
		}
		if got := p.ask("operator", "POST "+path, url.Values{"state": {"pending"}}); got.status != http.StatusBadRequest {
			t.Errorf("without a number at %s: %d", path, got.status)
		}
	}
	for _, got := range []answer{p.ask("operator", "POST /ui/bulk/jobs/cancel", url.Values{"expect": {"9"}}), p.ask("operator", "GET /ui/bulk/jobs/cancel?q=", nil)} {
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, "selects all jobs") {
			t.Errorf("all jobs: %d %s", got.status, got.body)
		}
	}
	if rec, err := p.client.Get(jobstest.Context(t), job.ID); err != nil || rec.State != jobs.Pending {
		t.Errorf("the job is %s: %v", rec.State, err)
	}
}

// A queue of which jobs run can be drained: it begins no more, and the page says how many
// still run.
func TestDrainAQueue(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill()
	if body := p.page("operator", "/ui/queues"); !strings.Contains(body, "/ui/queues/default/drain") || strings.Contains(body, "/ui/queues/gpu/drain") {
		t.Errorf("queues that can be drained: %s", body[strings.Index(body, "<main"):])
	}
	got := p.ask("operator", "POST /ui/queues/default/drain", nil)
	if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/ui/queues?done=draining&n=2" {
		t.Fatalf("drained: %d %s", got.status, to)
	}
	if body := p.page("operator", "/ui/queues?done=draining&n=2"); !strings.Contains(body, "2 of its jobs still run") || !strings.Contains(body, ", and draining") || strings.Contains(body, "/ui/queues/default/drain") {
		t.Errorf("while it drains: %s", body[strings.Index(body, "<main"):])
	}
	if got := p.ask("operator", "POST /ui/queues/gpu/drain", nil); got.header.Get("Location") != "/ui/queues?done=drained" {
		t.Errorf("one of which nothing runs: %d %v", got.status, got.header)
	}
}

// A worker drains at the click of an operator, and is resumed, whatever its name has.
func TestDrainAWorker(t *testing.T) {
	t.Parallel()
	p := open(t)
	worker := why.Worker{Name: "rack 2/build?7", Queues: []string{"default"}, Slots: 2, Started: time.Now().UTC().Truncate(time.Millisecond)}
	must(t, p.queue.Workers().Present(jobstest.Context(t), worker))
	must(t, p.queue.Workers().Present(jobstest.Context(t), why.Worker{
		Name: "ends", Queues: []string{"default"}, Slots: 2, Started: time.Now(), Drain: &why.Drain{By: "signal", At: time.Now(), Confirmed: true, Ends: true},
	}))
	const drain, resume = "/ui/workers/rack%202%2Fbuild%3F7/drain", "/ui/workers/rack%202%2Fbuild%3F7/resume"
	for _, step := range []struct{ offered, not, done string }{
		{drain, resume, "worker-drains"}, {resume, drain, "worker-resumed"}, {drain, resume, "worker-drains"},
	} {
		body := p.page("operator", "/ui/workers")
		if !strings.Contains(body, step.offered) || strings.Contains(body, step.not) || strings.Contains(body, "/ui/workers/ends/") {
			t.Fatalf("%s is not offered, or one that shuts down can be resumed: %s", step.offered, body[strings.Index(body, "<main"):])
		}
		if got := p.ask("operator", "POST "+step.offered, nil); got.header.Get("Location") != "/ui/workers?done="+step.done {
			t.Fatalf("%s: %d %v", step.offered, got.status, got.header)
		}
	}
	if body := p.page("viewer", "/ui/workers"); strings.Contains(body, resume) || !strings.Contains(body, "draining") {
		t.Errorf("a viewer sees %s", body[strings.Index(body, "<main"):])
	}
}

func (p *pool) dead() (n int) {
	p.t.Helper()
	for _, err := range p.client.DeadLetters().List(jobstest.Context(p.t), operation.DeadRequest{}) {
		must(p.t, err)
		n++
	}
	return n
}
