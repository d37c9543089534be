package pullrequest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/amend"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/dispatcher/pullrequest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/receipt"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool has GitHub beside it.
type pool struct {
	*testing.T
	queue  *queue.Queue
	log    *session.Log
	store  *artifact.Store
	github *forgetest.GitHub
	server *jobstest.Server
	noted  atomic.Uint64 // the last epoch with which a job was due
	// Of the next attempts; empty: they have none.
	patch, commit string
}

func newPool(t *testing.T) *pool {
	server := jobstest.Start(t)
	nc := server.Connect()
	return &pool{
		T: t, server: server, queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc), github: forgetest.NewGitHub(t, "secret"),
	}
}

func (p *pool) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// lead has a process lead, until end is called.
func (p *pool) lead() (end func()) {
	p.Helper()
	forges, err := forge.Settings{GitHub: forge.GitHubSettings{URL: p.github.URL, Token: "secret"}}.Forges()
	p.must(err)
	box := pullrequest.New(pullrequest.Hurried(pullrequest.Config{
		Queue: p.queue, Log: p.log, Store: p.store, Forges: forges, PublicURL: "https://penstock.example.com/",
	}))
	ctx, stop := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { box.Run(ctx) })
	g.Go(func() {
		for change, err := range p.queue.Changes(ctx, func() {}) {
			if err == nil {
				box.Note(change)
			}
			if change.Record.PullDue() {
				p.noted.Store(change.Record.Epoch)
			}
		}
	})
	end = sync.OnceFunc(func() { stop(); g.Wait() })
	p.Cleanup(end)
	return end
}

// submit submits a job that asks for a pull request.
func (p *pool) submit(change func(*jobs.Job)) jobs.Record {
	p.Helper()
	job := jobstest.Job()
	job.Repo.URL, job.Deliver.Mode, job.Prompt = p.github.Repository("o/r"), jobs.DeliverPR, "Fix @everyone\u202e in | it"
	if change != nil {
		change(&job)
	}
	return jobstest.Submit(p, p.queue, job)
}

// succeed runs an attempt as a worker does.
func (p *pool) succeed(res jobs.Result, draft string) jobs.Record {
	p.Helper()
	claim := jobstest.Claim(p, p.queue, "w")
	rec, ctx := claim.Record(), p.Context()
	res.Job, res.Outcome = rec.ID, jobs.Success
	if draft != "" {
		_, err := p.store.Put(ctx, rec.ID, claim.Epoch(), jobs.DraftArtifact, strings.NewReader(draft))
		p.must(err)
	}
	_, err := p.store.Put(ctx, rec.ID, claim.Epoch(), receipt.Name, strings.NewReader("{}"))
	p.must(err)
	if p.patch != "" {
		_, err := p.store.Put(ctx, rec.ID, claim.Epoch(), jobs.PatchName, strings.NewReader(p.patch))
		p.must(err)
	}
	for _, check := range res.Checks {
		_, err := p.log.Append(ctx, session.Source{Job: rec.ID, Session: rec.Session}, event.New(event.CheckEnded{Check: check, Output: "output of " + check.Command}))
		p.must(err)
	}
	if p.commit != "" {
		p.must(p.store.PutDelivery(ctx, rec.ID, claim.Epoch(), event.BranchDelivered{Branch: res.Branch, Commit: p.commit}))
	}
	p.must(p.store.PutResult(ctx, claim.Epoch(), res))
	rec, err = claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
	p.must(err)
	return rec
}

// resume has a finished job go on.
func (p *pool) resume(rec jobs.Record) error {
	rec, err := p.queue.Resume(context.Background(), rec, rec.Epoch)
	if err != nil {
		return err
	}
	return p.queue.Enqueue(context.Background(), rec)
}

// becomes waits for what the record says of the pull request.
func (p *pool) becomes(what string, id string, ok func(jobs.PullRequest) bool) jobs.PullRequest {
	p.Helper()
	var last jobs.Record
	if !slowtest.Eventually(20*time.Second, 10*time.Millisecond, func() bool {
		rec, err := p.queue.Get(p.Context(), id)
		p.must(err)
		last = rec
		return ok(*rec.PullRequest)
	}) {
		p.Fatalf("%s: the record has %+v", what, *last.PullRequest)
	}
	return *last.PullRequest
}

func isOpen(rec jobs.Record) func(jobs.PullRequest) bool {
	return func(pr jobs.PullRequest) bool { return pr.State == jobs.PullOpen && pr.Epoch == rec.Epoch }
}

func (p *pool) why(rec jobs.Record) string {
	p.Helper()
	rec, err := p.queue.Get(p.Context(), rec.ID)
	p.must(err)
	return why.Of(why.Facts{Record: rec}).Message
}

// Whatever happens to the calls on the way, there is one pull request in the end, with
// all that a reviewer has to know, and none of it costs the job an attempt.
func TestAPullRequestIsOpenedOnce(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	limited := forgetest.Fault{Status: 403, Header: map[string]string{"Retry-After": "1"}, Body: `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com"}`}
	p.github.Next(forgetest.ListPulls, forgetest.Fault{Status: 502}, limited)
	p.github.Next(forgetest.CreatePull, forgetest.Fault{Status: 500}, forgetest.Fault{Drop: true})
	p.github.Next(forgetest.AddLabels, forgetest.Fault{Status: 503})
	rec := p.submit(func(j *jobs.Job) {
		j.Deliver.Labels, j.Deliver.Reviewers = []string{"agent"}, []string{"ann"}
		j.Issue = &jobs.Issue{Number: 7, Title: "It is broken", URL: "https://github.com/o/r/issues/7"}
	})
	p.lead()
	end := p.succeed(jobs.Result{
		Branch: "penstock/x", Model: "m|`m", CostUSD: 0.25, Usage: jobs.Usage{Input: 10, Output: 5}, PatchSHA256: "abc", FilesChanged: 2,
		Checks: []jobs.Check{{Command: "make ``` test", Exit: 0, Seconds: 1.25, Tests: &jobs.Tests{Passed: 1, Errors: 2, FailedCases: []string{"@octocat ``` <!-- penstock: end -->"}}}},
	}, "Mend the thing\n\nI mended it, @octocat.\n```\nFixes #1 <!-- penstock: end -->\n")
	pr := p.becomes("faults", rec.ID, isOpen(end))
	all := p.github.Pulls()
	if len(all) != 1 || pr.Number != 1 || !strings.HasSuffix(pr.URL, "/o/r/pull/1") || pr.Message != "" {
		t.Fatalf("GitHub has %+v, and the record %+v", all, pr)
	}
	got := all[0]
	if got.Title != "Mend the thing" || got.Head != "penstock/x" || got.Base != "main" || !got.Draft || !slices.Equal(got.Labels, []string{"agent"}) || !slices.Equal(got.Reviewers, []string{"ann"}) {
		t.Errorf("the pull request is %+v", got)
	}
	for _, part := range []string{
		"````text\nI mended it, @octocat.\n```\nFixes #1 <! -- penstock: end -->\n````", "Issue: https://github.com/o/r/issues/7", "````text\n$ make ``` test\n````", "output of make ``` test",
		"````text\nThe reports of its tests say: 1 test passed, 2 with errors\nfailed: @octocat ``` <! -- penstock: end -->\nand 1 more\n````",
		"| cost | `0.2500 US dollars, 15 tokens` |", "| model | `m¦'m` |", "| patch (SHA-256) | `abc` |", "| receipt (SHA-256) | `44136fa3", "(https://penstock.example.com/ui/jobs/" + rec.ID + ")",
	} {
		if !strings.Contains(got.Body, part) {
			t.Errorf("the text lacks %q:\n%s", part, got.Body)
		}
	}
	if now, err := p.queue.Get(t.Context(), rec.ID); err != nil || now.Attempt != 1 || now.Outcome != jobs.Success || !strings.Contains(p.why(rec), pr.URL) {
		t.Errorf("the record is %+v, %v; why: %s", now, err, p.why(rec))
	}
}

// However much there is to tell, a forge takes the text.
func TestALongTextIsBounded(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.lead()
	p.submit(nil)
	res := jobs.Result{Branch: "penstock/x"}
	for n := range 40 {
		check := jobs.Check{Command: fmt.Sprint("test ", n, strings.Repeat(" x", 50)), Exit: n % 2}
		res.Checks = append(res.Checks, check)
	}
	end := p.succeed(res, "Title\n"+strings.Repeat("word ", 20_000))
	p.becomes("a long text", end.ID, isOpen(end))
	body := p.github.Pulls()[0].Body
	if len(body) > 32<<10 || strings.Contains(body, "test 7 ") || !strings.Contains(body, "\n34 more checks ran; 17 of them ended with another exit code than 0.\n") {
		t.Errorf("the text has %d bytes:\n%.2000s", len(body), body)
	}
}

// The pull request of a job whose leader died before it could say so is found by the next
// one. A later attempt updates it, and what people have written around it stays.
func TestALaterAttemptUpdatesIt(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	rec := p.submit(nil)
	first := p.succeed(jobs.Result{Branch: "penstock/x", FilesChanged: 1}, "")
	end := p.lead()
	p.becomes("the first attempt", rec.ID, isOpen(first))
	end()
	lost := first // as if it had not been written
	lost.PullRequest = &jobs.PullRequest{State: jobs.PullWanted}
	p.must(amend.SetPullRequest(t.Context(), p.queue, first, *lost.PullRequest))
	end = p.lead()
	p.becomes("after a crash", rec.ID, isOpen(first))
	end()
	if n := p.github.Calls(forgetest.CreatePull) + p.github.Calls(forgetest.UpdatePull); n != 1 {
		t.Errorf("%d calls, want the one that made it", n)
	}
	p.github.Change(1, func(pr *forgetest.Pull) { pr.Body = "Before.\n" + pr.Body + "\nAfter."; pr.Title = "Renamed" })
	p.must(p.resume(first))
	second := p.succeed(jobs.Result{Branch: "penstock/x", FilesChanged: 77}, "")
	p.lead()
	p.becomes("the second attempt", rec.ID, isOpen(second))
	all := p.github.Pulls()
	body := all[0].Body
	if len(all) != 1 || all[0].Title != "Renamed" || !strings.HasPrefix(body, "Before.\n<!-- penstock: job ") || !strings.HasSuffix(body, "-->\nAfter.") || !strings.Contains(body, "| files changed | `77` |") {
		t.Errorf("GitHub has %+v", all)
	}
}

// The checks of each attempt stand beside the commit that it has delivered. A credential that may not
// show them is no reason to have no pull request.
func TestChecksAreShown(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.lead()
	p.github.Next(forgetest.AddStatus, forgetest.Fault{Status: 502}, forgetest.Fault{Drop: true})
	rec := p.submit(nil)
	p.commit = strings.Repeat("ab", 20)
	checks := []jobs.Check{{Command: "make test"}, {Command: "make lint", Exit: 2}}
	first := p.succeed(jobs.Result{Branch: "penstock/x", Checks: checks}, "")
	if pr := p.becomes("the first attempt", rec.ID, isOpen(first)); pr.Message != "" {
		t.Errorf("the record has %+v", pr)
	}
	p.must(p.resume(first))
	p.commit = strings.Repeat("cd", 20)
	p.github.Next(forgetest.AddStatus, forgetest.Fault{Status: 403, Body: `{"message":"Resource not accessible by personal access token","documentation_url":"https://docs.github.com"}`})
	second := p.succeed(jobs.Result{Branch: "penstock/x", Checks: checks[:1]}, "")
	if pr := p.becomes("the second attempt", rec.ID, isOpen(second)); !strings.HasPrefix(pr.Message, "without its checks: ") {
		t.Errorf("the record has %+v", pr)
	}
	p.must(p.resume(second))
	third := p.succeed(jobs.Result{Branch: "penstock/x", Checks: checks[:1]}, "")
	p.becomes("the third attempt", rec.ID, isOpen(third))
	var got []string
	for _, c := range p.github.Checks() {
		got = append(got, fmt.Sprint(c.Commit[:2], " ", c.Outcome, ": ", c.Summary, " at ", strings.TrimSuffix(c.Page, rec.ID)))
	}
	const page = " at https://penstock.example.com/ui/jobs/"
	// The answer to the first one was lost, so it came twice; the last one of a commit counts.
	want := []string{"ab failure: 1 of 2 checks passed in the pool" + page, "ab failure: 1 of 2 checks passed in the pool" + page, "cd success: 1 of 1 checks passed in the pool" + page}
	if !slices.Equal(got, want) {
		t.Errorf("GitHub has %q, want %q", got, want)
	}
}

// A job that goes on while its pull request is about to be made has none of the attempt
// before.
func TestASupersededAttemptMakesNone(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	rec := p.submit(nil)
	first := p.succeed(jobs.Result{Branch: "penstock/x"}, "")
	asked, goOn := make(chan struct{}), make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked); <-goOn })
	p.github.Before = func(operation string) {
		if operation == forgetest.ListPulls {
			ask()
		}
	}
	p.lead()
	<-asked
	p.must(p.resume(first))
	second := p.succeed(jobs.Result{Branch: "penstock/x", FilesChanged: 77}, "")
	if !slowtest.Eventually(20*time.Second, time.Millisecond, func() bool { return p.noted.Load() == second.Epoch }) {
		t.Error("the leader has not read that the job has succeeded again")
	}
	close(goOn)
	p.becomes("the second attempt", rec.ID, isOpen(second))
	if all := p.github.Pulls(); len(all) != 1 || !strings.Contains(all[0].Body, "`77`") || p.github.Calls(forgetest.CreatePull) != 1 || p.github.Calls(forgetest.UpdatePull) != 0 {
		t.Errorf("GitHub has %+v", all)
	}
}

// What the forge refuses stands in the record, and in what explains it; what may be cured
// is tried again.
func TestRefusalsAreTold(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.lead()
	same := p.submit(nil)
	p.succeed(jobs.Result{Branch: "same"}, "")
	if pr := p.becomes("nothing to merge", same.ID, func(pr jobs.PullRequest) bool { return pr.State == jobs.PullRefused }); !strings.Contains(pr.Message, "No commits between main and same") || !strings.Contains(p.why(same), pr.Message) {
		t.Errorf("%+v; why: %s", pr, p.why(same))
	}
	unchanged := p.submit(nil)
	p.succeed(jobs.Result{}, "")
	if pr := p.becomes("no change", unchanged.ID, func(pr jobs.PullRequest) bool { return pr.State == jobs.PullNone }); !strings.Contains(p.why(unchanged), "the agent changed nothing") {
		t.Errorf("%+v; why: %s", pr, p.why(unchanged))
	}
	for _, f := range []struct {
		fault forgetest.Fault
		says  string
	}{
		{forgetest.Fault{Status: 401, Body: `{"message":"Bad credentials","documentation_url":"https://docs.github.com"}`}, "401: Bad credentials"},
		{forgetest.Fault{Status: 404, Body: `{"message":"Not Found","documentation_url":"https://docs.github.com"}`}, "404: Not Found"},
	} {
		p.github.Next(forgetest.ListPulls, slices.Repeat([]forgetest.Fault{f.fault}, 6)...)
		denied := p.submit(nil)
		end := p.succeed(jobs.Result{Branch: "penstock/" + denied.ID}, "")
		p.becomes(f.says, denied.ID, func(pr jobs.PullRequest) bool {
			return pr.State == jobs.PullWanted && strings.Contains(pr.Message, f.says)
		})
		if !strings.Contains(p.why(denied), f.says) {
			t.Error(p.why(denied))
		}
		p.becomes("cured", denied.ID, isOpen(end))
	}
}

// A refusal that the store does not take, since its disk is full, is not forgotten. It is the
// first that the record would say of the pull request, so no change of it brings the job back.
func TestARefusalThatCannotBeNotedIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	invalid := forgetest.Fault{Status: 400, Body: `{"message":"Problems parsing JSON","documentation_url":"https://docs.github.com"}`}
	p.github.Next(forgetest.ListPulls, invalid, invalid)
	var asked atomic.Int32
	p.github.Before = func(operation string) {
		if operation != forgetest.ListPulls {
			return
		}
		switch asked.Add(1) {
		case 1:
			p.server.Limit(1)
		case 2:
			p.server.Limit(-1)
		}
	}
	rec := p.submit(nil)
	p.succeed(jobs.Result{Branch: "penstock/x"}, "")
	p.lead()
	p.becomes("a full disk", rec.ID, func(pr jobs.PullRequest) bool { return pr.State == jobs.PullRefused })
	if n := asked.Load(); n != 2 {
		t.Errorf("GitHub was asked %d times, want 2", n)
	}
}

// A pull request that a person has opened for the branch is left as it is. Reviewers whom
// the forge does not take cost only the review.
func TestAPersonsPullRequestStays(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	forges, err := forge.Settings{GitHub: forge.GitHubSettings{URL: p.github.URL, Token: "secret"}}.Forges()
	p.must(err)
	_, err = forges[0].Create(t.Context(), forge.Change{Repo: "o/r", Head: "penstock/x", Title: "Mine", Body: "By hand."})
	p.must(err)
	rec := p.submit(func(j *jobs.Job) { j.Deliver.Reviewers = []string{"stranger"} })
	end := p.succeed(jobs.Result{Branch: "penstock/x"}, "")
	p.lead()
	pr := p.becomes("a person's", rec.ID, isOpen(end))
	if got := p.github.Pulls()[0]; got.Body != "By hand." || pr.Number != 1 || !strings.Contains(pr.Message, "may only be requested from collaborators") {
		t.Errorf("GitHub has %+v, the record %+v", got, pr)
	}
}

func TestRepositoriesElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	forges, err := forge.Settings{GitHub: forge.GitHubSettings{Token: "t"}, Gitea: forge.TokenSettings{URL: "https://codeberg.org", Token: "t"}}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	box := pullrequest.New(pullrequest.Config{Forges: forges})
	for address, ok := range map[string]bool{"https://github.com/o/r": true, "git@codeberg.org:o/r.git": true, "/srv/app": false, "https://u:p@example.com/o/r": false} {
		err := box.Check(jobs.Job{Repo: jobs.Repo{URL: address}})
		if (err == nil) != ok || err != nil && (!strings.Contains(err.Error(), "GitHub, Gitea") || strings.Contains(err.Error(), ":p@")) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
