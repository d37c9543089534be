package pullrequest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/amend"

	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// issue is the page of an issue of the job's repository.
func (p *pool) issue() string {
	return strings.TrimSuffix(p.github.Repository("o/r"), ".git") + "/issues/7"
}

// becomeComments waits until GitHub has so many comments.
func (p *pool) becomeComments(n int) []forgetest.Comment {
	p.Helper()
	if !slowtest.Eventually(20*time.Second, 10*time.Millisecond, func() bool { return len(p.github.Comments()) >= n }) {
		p.Fatalf("GitHub has %d comments, want %d", len(p.github.Comments()), n)
	}
	return p.github.Comments()
}

// The issue is told of the pull request once, also where the answer to that was lost and the
// leader died before it could say so. An issue of another repository is told nothing, and one
// that takes no comment keeps nothing from being opened.
func TestTheIssueIsToldOfThePullRequest(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	end := p.lead()
	p.github.Next(forgetest.AddComment, forgetest.Fault{Status: 503}, forgetest.Fault{Drop: true})
	rec := p.submit(func(j *jobs.Job) { j.Issue = &jobs.Issue{Number: 7, URL: p.issue()} })
	first := p.succeed(jobs.Result{Branch: "penstock/x", FilesChanged: 1}, "")
	p.becomes("the pull request", rec.ID, isOpen(first))
	end()
	p.must(amend.SetPullRequest(t.Context(), p.queue, first, jobs.PullRequest{State: jobs.PullWanted})) // as if it had not been written
	p.lead()
	p.becomes("after a crash", rec.ID, isOpen(first))
	all := p.github.Comments()
	if len(all) != 1 || all[0].Repo != "o/r" || all[0].Number != 7 || !strings.Contains(all[0].Body, "for review: #1\n") || !strings.Contains(all[0].Body, "/ui/jobs/"+rec.ID) {
		t.Errorf("the issue has %+v", all)
	}
	if body := p.github.Pulls()[0].Body; !strings.Contains(body, "Issue: "+p.issue()+"\n") {
		t.Errorf("the pull request does not refer to its issue:\n%s", body)
	}
	elsewhere := p.submit(func(j *jobs.Job) { j.Issue = &jobs.Issue{URL: strings.Replace(p.issue(), "o/r", "o/other", 1)} })
	p.becomes("another repository", elsewhere.ID, isOpen(p.succeed(jobs.Result{Branch: "penstock/y"}, "")))
	p.github.Next(forgetest.AddComment, forgetest.Fault{Status: 403, Body: `{"message":"Resource not accessible","documentation_url":"https://docs.github.com"}`})
	denied := p.submit(func(j *jobs.Job) { j.Issue = &jobs.Issue{URL: p.issue()} })
	pr := p.becomes("no right to comment", denied.ID, isOpen(p.succeed(jobs.Result{Branch: "penstock/z"}, "")))
	if !strings.Contains(pr.Message, "without a comment on its issue: ") || !strings.Contains(pr.Message, "Resource not accessible") || len(p.github.Comments()) != 1 {
		t.Errorf("the record has %+v, and GitHub %+v", pr, p.github.Comments())
	}
}

// ask has the agent of a job that runs ask, and wait for the answer.
func (p *pool) ask(claim *queue.Claim, ask control.Ask) {
	p.Helper()
	rec := claim.Record()
	_, err := p.log.Append(p.Context(), session.Source{Job: rec.ID, Session: rec.Session, Attempt: 1}, event.New(event.AskOpened(ask)))
	p.must(err)
	claim.Ask(&jobs.OpenAsk{Ask: ask.Ask, Type: ask.Type, Question: "?", Since: time.Now(), Open: 1})
	claim.Renew()
}

// A question of a job that a rule has made is a comment on its issue: once, whoever leads, and
// the next one when that is open. What the agent wrote is in blocks of code.
func TestAQuestionIsAComment(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	end := p.lead()
	p.github.Next(forgetest.AddComment, forgetest.Fault{Drop: true})
	rec := p.submit(func(j *jobs.Job) { j.Labels = map[string]string{"hook": "issues", "issue": p.issue()} })
	claim := jobstest.Claim(t, p.queue, "w")
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); _ = claim.Keep(ctx) }() // it ends with the test
	defer func() { stop(); <-kept }()
	options, err := json.Marshal([]control.Question{{Question: "Which, @octocat?\n``` <!-- penstock: end -->", Options: []control.Option{{Label: "Red", Description: "a colour"}, {Label: "Blue"}}}})
	p.must(err)
	p.ask(claim, control.Ask{Ask: "q-->1", Type: "question", Questions: options})
	first := p.becomeComments(1)[0]
	const asked = "The coding agent asks:\n\n````text\nWhich, @octocat?\n``` <! -- penstock: end -->\n  1. Red (a colour)\n  2. Blue\n````\n"
	if first.Number != 7 || !strings.HasPrefix(first.Body, asked) || !strings.HasSuffix(first.Body, "\n<!-- penstock: question q1 of job "+rec.ID+" -->") {
		t.Errorf("the comment is %s", first.Body)
	}
	end()
	p.lead()
	claim.Renew() // and the next leader reads that it asks
	p.ask(claim, control.Ask{Ask: "other", Type: "permission", Tool: "Bash", Input: []byte(`{"command":"make"}`)})
	answered := control.Message{ID: jobs.NewID(), Verb: control.Answer, Ask: "q-->1", Options: []string{"Red"}}
	_, err = p.log.Append(t.Context(), session.Source{Job: rec.ID, Session: rec.Session, Attempt: 1}, event.New(event.InputState(answered.Input())))
	p.must(err)
	claim.Renew()
	all := p.becomeComments(2)
	if len(all) != 2 || !strings.Contains(all[1].Body, "permission to use `Bash`:\n\n```text\n{\"command\":\"make\"}\n```") || !strings.Contains(all[1].Body, "`allow`") {
		t.Errorf("the comments are %+v", all)
	}
}
