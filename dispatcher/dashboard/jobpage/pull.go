package jobpage

import (
	"context"
	"net/http"
	"net/url"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

// openPull is the action that accepts a result and delivers it as a draft pull request.
const openPull = "pull-request"

// A pull is what a page says of a job's pull request.
type pull struct {
	State   string
	URL     string // of its page on the forge, once it is there
	Number  int
	Message string // what keeps it, or why there is none
	Bad     bool   // that is for a person to solve
}

// pullOf is nil for a job that has asked for none, or cannot have one yet.
func pullOf(rec jobs.Record) *pull {
	pr := rec.PullRequest
	if pr == nil || rec.State != jobs.Finished || rec.Outcome != jobs.Success {
		return nil
	}
	p := &pull{State: string(pr.State), Number: pr.Number, Message: visible.Line(pr.Message), Bad: pr.State == jobs.PullRefused || rec.PullDue() && pr.Message != ""}
	if at, err := url.Parse(pr.URL); err == nil && (at.Scheme == "https" || at.Scheme == "http") {
		p.URL = pr.URL
	}
	return p
}

// canOpen reports whether a person may have a pull request of the result opened: the pool opens
// some, the job has delivered a branch and its repository is on one of the pool's forges, and
// no pull request is there or on its way.
func canOpen(v *dashboard.Visit, rec jobs.Record) (bool, error) {
	if !v.May(operation.PullRequest.Row) || rec.State != jobs.Finished || rec.Outcome != jobs.Success || !v.OpensPullRequests(rec.Repo) {
		return false, nil
	}
	if pr := rec.PullRequest; pr != nil && (pr.State == jobs.PullOpen || rec.PullDue()) {
		return false, nil
	}
	asking, err := v.Client(operation.PullRequest.Row)
	if err != nil {
		return false, err
	}
	result, err := asking.Result(v.Context(), rec.ID)
	return err == nil && result.Branch != "", err
}

// pullRequest accepts the result that the reader has seen, has the pool open a draft pull request
// of it. It is delivered as soon as that is open; if there can be none, it stays accepted.
func pullRequest(ctx context.Context, c *client.Client, id string, r *http.Request) (string, error) {
	if err := review(ctx, c, id, r, jobs.Accepted); err != nil {
		return "", err
	}
	epoch, err := epochOf(r)
	if err != nil {
		return "", err
	}
	if _, err := c.PullRequest(ctx, operation.PullRequestRequest{ID: id, Epoch: epoch}); err != nil {
		return "", err
	}
	to := ""
	if r.PostFormValue("inbox") != "" {
		to = "/ui/jobs/" + id + "/review?" + url.Values{"batch": {r.PostFormValue("batch")}}.Encode()
	}
	return to, nil
}
