package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/summary"
)

// store stores an artifact of a job that runs.
func (p *pool) put(r running, name, content string) {
	p.t.Helper()
	if _, err := p.store.Put(jobstest.Context(p.t), r.id, r.claim.Epoch(), name, strings.NewReader(content)); err != nil {
		p.t.Fatal(err)
	}
}

// Patches of any length, artifacts and the agent's output are files, which no browser
// shows as a page.
func TestDownloads(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	page := "<script>alert(1)</script>"
	long := strings.Repeat("+line\n", 400<<10) // more than a message of the broker holds
	p.say(job, page)
	p.put(job, "page.html", page)
	p.put(job, jobs.PatchName, long)
	early := p.ask(jobs.RoleSubmitter, "GET /v1/jobs/"+job.id+"/patch", "")
	if early.status != http.StatusConflict {
		t.Errorf("the patch of a job that runs: %d %s", early.status, early.body)
	}
	p.finish(job)
	at := "GET /v1/jobs/" + job.id
	for _, c := range []struct{ path, content, kind, file string }{
		{"/patch", long, "text/x-diff; charset=utf-8", "attachment; filename=" + job.id + ".patch"},
		{"/artifacts/page.html", page, "application/octet-stream", "attachment; filename=page.html"},
		{fmt.Sprintf("/artifacts/page.html?epoch=%d", job.claim.Epoch()), page, "application/octet-stream", "attachment; filename=page.html"},
		{"/log", page + "\n", "text/plain; charset=utf-8", ""},
	} {
		got := p.ask(jobs.RoleViewer, at+c.path, "")
		if got.status != http.StatusOK || got.body != c.content || got.header.Get("Content-Type") != c.kind || got.header.Get("Content-Disposition") != c.file || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %d bytes, %v", c.path, got.status, len(got.body), got.header)
		}
		if head := p.ask(jobs.RoleViewer, "HEAD /v1/jobs/"+job.id+c.path, ""); head.status != http.StatusOK || head.body != "" {
			t.Errorf("HEAD %s: %d %s", c.path, head.status, head.body)
		}
	}
	if got := p.ask(jobs.RoleSubmitter, at+"/artifacts/page.html", ""); got.status != http.StatusForbidden {
		t.Errorf("an artifact for a submitter: %d", got.status)
	}
	for _, path := range []string{
		"/artifacts/..%2f..%2f..%2fetc%2fpasswd", "/artifacts/%2e%2e/page.html", "/artifacts/..", "/artifacts/../artifacts/page.html", "/artifacts//page.html",
		"/artifacts/agent/../page.html", "/artifacts/page.html/", "/artifacts/.", "/artifacts/page.html%00", "/artifacts/%E2%80%AE.html", "/artifacts/result", "/artifacts/",
		"/artifacts/page.html?epoch=999", "/artifacts/page.html?epoch=-1", "/artifacts/page.html?name=x", "%2f..%2fother/patch",
	} {
		if got := p.ask(jobs.RoleOperator, at+path, ""); got.status != http.StatusNotFound && got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// A job that failed and was tried again has two attempts.
func TestAttempts(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	if _, err := job.claim.Settle(jobstest.Context(t), jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed, Message: "no"}, p.log.Finisher(p.store.Result)); err != nil {
		t.Fatal(err)
	}
	want[jobs.Record](t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs/"+job.id+"/retry", ""), 200)
	p.write(jobstest.Claim(t, p.queue, "w2"))
	got := want[summary.Attempts](t, p.ask(jobs.RoleSubmitter, "GET /v1/jobs/"+job.id+"/attempts", ""), 200).Attempts
	if len(got) != 2 || got[0].Worker != "w" || got[0].Epoch != job.claim.Epoch() || got[0].End != jobs.JobFinished || got[0].Ended == nil || got[0].Message != "no" {
		t.Fatalf("attempts: %+v", got)
	}
	if second := got[1]; second.Attempt != 2 || second.Worker != "w2" || second.Ended != nil || second.Epoch <= got[0].Epoch {
		t.Errorf("the second attempt: %+v", second)
	}
	if got := want[summary.Attempts](t, p.ask(jobs.RoleViewer, "GET /v1/jobs/"+p.submitted()+"/attempts", ""), 200).Attempts; got == nil || len(got) != 0 {
		t.Errorf("attempts of a job that has begun none: %+v", got)
	}
}
