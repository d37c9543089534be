package forge

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/go-github/v92/github"
)

// CheckName is what forges call the checks of the pool.
const CheckName = "penstock"

// A Check is what the pool's own checks have found about a commit.
type Check struct {
	Repo   string
	Commit string // its full name
	// ID tells the report from others of the same commit.
	ID      string
	Passed  bool
	Summary string // one line of up to 140 characters
	Text    string // what there is to read about it, in Markdown; some forges have no place for it
	Page    string // where people read more; empty: nowhere
}

// verdict is what forges call the outcome; of a failure each has its own word.
func (c Check) verdict(failed string) string {
	if c.Passed {
		return "success"
	}
	return failed
}

// forChecks is what an App's token for check runs may do.
var forChecks = use{" checks", github.InstallationPermissions{Checks: new("write")}}

// Check is that of [Forge]. GitHub takes check runs of Apps alone; a token leaves a status.
func (g *gitHub) Check(ctx context.Context, c Check) error {
	by, owner, name, err := g.clientFor(c.Repo, forChecks)
	if err != nil {
		return err
	}
	var page *string
	if c.Page != "" {
		page = &c.Page
	}
	verdict := c.verdict("failure")
	if g.app == nil {
		_, _, err := by.Repositories.CreateStatus(ctx, owner, name, c.Commit, github.RepoStatus{State: &verdict, Context: new(CheckName), Description: &c.Summary, TargetURL: page})
		return g.failed(c.Repo, err)
	}
	list, _, err := by.Checks.ListCheckRunsForRef(ctx, owner, name, c.Commit, &github.ListCheckRunsOptions{CheckName: new(CheckName)})
	if err != nil {
		return g.failed(c.Repo, err)
	}
	for _, run := range list.CheckRuns {
		if run.GetExternalID() == c.ID {
			return nil
		}
	}
	_, _, err = by.Checks.CreateCheckRun(ctx, owner, name, github.CreateCheckRunOptions{
		Name: CheckName, HeadSHA: c.Commit, ExternalID: &c.ID, DetailsURL: page, Status: new("completed"), Conclusion: &verdict,
		Output: &github.CheckRunOutput{Title: &c.Summary, Summary: &c.Summary, Text: &c.Text},
	})
	return g.failed(c.Repo, err)
}

// Check is that of [Forge]. GitLab refuses a status that a commit has already.
func (g *gitLab) Check(ctx context.Context, c Check) error {
	state := c.verdict("failed")
	var list []struct {
		Status string `json:"status"`
	}
	if err := g.call(ctx, ask{method: http.MethodGet, path: g.project(c.Repo, "/repository/commits/"+c.Commit+"/statuses"), query: url.Values{"name": {CheckName}}}, &list); err != nil {
		return err
	}
	if len(list) > 0 && list[0].Status == state {
		return nil
	}
	return g.call(ctx, ask{method: http.MethodPost, path: g.project(c.Repo, "/statuses/"+c.Commit), body: status("name", state, c)}, nil)
}

// Check is that of [Forge].
func (g *gitea) Check(ctx context.Context, c Check) error {
	return g.call(ctx, ask{method: http.MethodPost, path: "/repos/" + c.Repo + "/statuses/" + c.Commit, body: status("context", c.verdict("failure"), c)}, nil)
}

// status is the body of a request for a status, whose name is in a field.
func status(name, state string, c Check) map[string]any {
	body := map[string]any{name: CheckName, "state": state, "description": c.Summary}
	if c.Page != "" {
		body["target_url"] = c.Page
	}
	return body
}
