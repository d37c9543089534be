package jobpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/dispatcher/pullrequest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// withGitHub has the pool open pull requests.
func withGitHub(github *forgetest.GitHub) func(*pool) {
	return func(p *pool) {
		p.t.Helper()
		forges, err := forge.Settings{GitHub: forge.GitHubSettings{URL: github.URL, Token: "secret"}}.Forges()
		if err != nil {
			p.t.Fatal(err)
		}
		box := pullrequest.New(pullrequest.Config{Queue: p.queue, Log: p.log, Store: p.store, Forges: forges})
		p.opens = box.Check
		ctx, stop := context.WithCancel(context.Background())
		var g sync.WaitGroup
		g.Go(func() { box.Run(ctx) })
		g.Go(func() {
			for change, err := range p.queue.Changes(ctx, func() {}) {
				if err == nil {
					box.Note(change)
				}
			}
		})
		p.t.Cleanup(func() { stop(); g.Wait() })
	}
}

// succeeded is a job that has delivered a branch; empty: none.
func (p *pool) succeeded(repo, branch string) (rec jobs.Record) {
	p.t.Helper()
	job := jobstest.Job()
	job.Repo.URL, job.Deliver.Mode = repo, jobs.DeliverBranch
	ctx := jobstest.Context(p.t)
	if _, err := p.client.Submit(ctx, job); err != nil {
		p.t.Fatal(err)
	}
	claim := jobstest.Claim(p.t, p.queue, "w")
	err := p.store.PutResult(ctx, claim.Epoch(), jobs.Result{Job: claim.Record().ID, Outcome: jobs.Success, Branch: branch})
	if err == nil {
		rec, err = claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return rec
}

// A result with a branch is delivered as a pull request by a button, by those who may, as the
// page showed it; the page says what becomes of it. Where there can be none there is no button.
func TestAPullRequestByAButton(t *testing.T) {
	t.Parallel()
	github := forgetest.NewGitHub(t, "secret")
	p := open(t, withGitHub(github))
	rec := p.succeeded(github.Repository("o/r"), "penstock/x")
	base := "/ui/jobs/" + rec.ID
	button := `action="` + base + `/pull-request"`
	for page, want := range map[string]int{base: 1, base + "/review": 2} {
		if got := p.page(jobs.RoleSubmitter, page); strings.Count(got, button) != want {
			t.Errorf("%s has not %d buttons: %s", page, want, got)
		}
		if got := p.page(jobs.RoleViewer, page); strings.Contains(got, button) {
			t.Errorf("%s: a viewer has the button", page)
		}
	}
	without := p.succeeded(github.Repository("o/r"), "")
	elsewhere := p.succeeded("https://elsewhere.example/o/r.git", "penstock/y")
	failed := p.run()
	failed.finish(jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed})
	running := p.run()
	for what, id := range map[string]string{"without a branch": without.ID, "on no forge": elsewhere.ID, "that failed": failed.id, "that runs": running.id} {
		if got := p.page(jobs.RoleSubmitter, "/ui/jobs/"+id); strings.Contains(got, "/pull-request") {
			t.Errorf("a job %s has the button", what)
		}
	}
	epoch := fmt.Sprint(rec.Epoch)
	for _, step := range []struct {
		what, id, epoch string
		role            jobs.Role
		status          int
		says            string
	}{
		{"no epoch", rec.ID, "", jobs.RoleSubmitter, http.StatusBadRequest, "is not a number"},
		{"another result", rec.ID, "1" + epoch, jobs.RoleSubmitter, http.StatusConflict, "another result"},
		{"no branch", without.ID, fmt.Sprint(without.Epoch), jobs.RoleSubmitter, http.StatusBadRequest, "has delivered no branch"},
		{"on no forge", elsewhere.ID, fmt.Sprint(elsewhere.Epoch), jobs.RoleSubmitter, http.StatusBadRequest, "elsewhere.example"},
		{"a viewer", rec.ID, epoch, jobs.RoleViewer, http.StatusForbidden, "not allowed"},
	} {
		got := p.ask(step.role, "POST /ui/jobs/"+step.id+"/pull-request", url.Values{"epoch": {step.epoch}})
		if got.status != step.status || !strings.Contains(got.body, step.says) {
			t.Errorf("%s: %d, want %d with %q: %s", step.what, got.status, step.status, step.says, got.body)
		}
	}
	if now, err := p.client.Get(jobstest.Context(t), rec.ID); err != nil || now.PullRequest != nil || now.Reviewed() != jobs.Unreviewed || len(github.Pulls()) != 0 {
		t.Errorf("refused requests have made %+v, %s, %v, %d on the forge", now.PullRequest, now.Reviewed(), err, len(github.Pulls()))
	}

	if got := p.ask(jobs.RoleSubmitter, "POST "+base+"/pull-request", url.Values{"epoch": {epoch}}); got.status != http.StatusSeeOther || got.header.Get("Location") != base {
		t.Fatalf("%d %s", got.status, got.body)
	}
	p.says(rec.ID, `<p id="pull">Pull request: <a href="`+github.URL[:len("http://")], `rel="noreferrer">#1</a> open</p>`)
	if now, err := p.client.Get(jobstest.Context(t), rec.ID); err != nil || now.Reviewed() != jobs.Delivered {
		t.Errorf("the result is %s, %v", now.Reviewed(), err)
	}
	if pulls := github.Pulls(); len(pulls) != 1 || !pulls[0].Draft {
		t.Errorf("the forge has %+v", pulls)
	}
	if got := p.page(jobs.RoleSubmitter, base+"/review"); strings.Contains(got, button) {
		t.Error("a job with a pull request has the button")
	}

	refused := p.succeeded(github.Repository("o/r"), "same")
	form := url.Values{"epoch": {fmt.Sprint(refused.Epoch)}, "inbox": {"1"}, "batch": {"a&b"}}
	if got := p.ask(jobs.RoleOperator, "POST /ui/jobs/"+refused.ID+"/pull-request", form); got.header.Get("Location") != "/ui/jobs/"+refused.ID+"/review?batch=a%26b" {
		t.Errorf("it leads to %q (%d)", got.header.Get("Location"), got.status)
	}
	p.says(refused.ID, `<p id="pull" class="notice bad">Pull request: refused: `, "No commits between main and same", "/pull-request")
	if now, err := p.client.Get(jobstest.Context(t), refused.ID); err != nil || now.Reviewed() != jobs.Accepted {
		t.Errorf("the result whose pull request is refused is %s, %v", now.Reviewed(), err)
	}
}

// A pool without a forge has no button, and says why it does not open what is asked for.
func TestAPoolWithoutAForgeHasNoButton(t *testing.T) {
	t.Parallel()
	p := open(t)
	rec := p.succeeded("https://github.com/o/r.git", "penstock/x")
	if got := p.page(jobs.RoleSubmitter, "/ui/jobs/"+rec.ID+"/review"); strings.Contains(got, "pull-request") {
		t.Errorf("there is a button: %s", got)
	}
	got := p.ask(jobs.RoleSubmitter, "POST /ui/jobs/"+rec.ID+"/pull-request", url.Values{"epoch": {fmt.Sprint(rec.Epoch)}})
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "this pool opens no pull requests") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// says waits until the page of a job has texts.
func (p *pool) says(id string, texts ...string) {
	p.t.Helper()
	page := ""
	if !slowtest.Eventually(20*time.Second, 20*time.Millisecond, func() bool {
		page = p.page(jobs.RoleSubmitter, "/ui/jobs/"+id)
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return false
			}
		}
		return true
	}) {
		p.t.Fatalf("the page has not all of %q: %s", texts, page)
	}
}

// In a real browser a click opens the pull request, and the page shows it without being loaded
// again; so does it show that the forge refuses one.
func TestAPullRequestInTheBrowser(t *testing.T) {
	node, chromium := browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	github := forgetest.NewGitHub(t, "secret")
	p := open(t, withGitHub(github))
	taken, refused := p.succeeded(github.Repository("o/r"), "penstock/x"), p.succeeded(github.Repository("o/r"), "same")
	task, err := browsertest.Task(chromium, map[string]any{"url": p.url, "token": "submitter", "taken": taken.ID, "refused": refused.ID})
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Browse(t, node, "testdata/pull.cjs", task)
	if pulls := github.Pulls(); len(pulls) != 1 {
		t.Errorf("the forge has %+v", pulls)
	}
}
