package jobpage

import (
	"net/http"
	"net/url"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// inbox is the address that leads to the next unreviewed result, of a
// batch or of all jobs, behind a job.
func inbox(batch, after string) string {
	query := url.Values{}
	for name, value := range map[string]string{"batch": batch, "after": after} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "/ui/review?" + query.Encode()
}

// nextResult leads to the next result, or to the empty list.
func nextResult(v *dashboard.Visit) error {
	query := v.R.URL.Query()
	batch := query.Get("batch")
	list, err := dashboard.Ask(v, operation.List, operation.ListRequest{
		Batch: batch, State: jobs.Finished, Outcome: jobs.Success, Review: jobs.Unreviewed, After: query.Get("after"), Limit: 1,
	})
	if err != nil {
		return err
	}
	if len(list.Jobs) == 0 {
		return v.Redirect("/ui/jobs?" + url.Values{"batch": {batch}, "outcome": {string(jobs.Success)}, "review": {string(jobs.Unreviewed)}}.Encode())
	}
	return v.Redirect("/ui/jobs/" + list.Jobs[0].ID + "/review?" + url.Values{"batch": {batch}}.Encode())
}

// A decision is the dot of the tab on which a person decides about a result.
type decision struct {
	Checks []checkRow // of the last attempt
	Diff   diff
	Epoch  uint64
	Batch  string
	Skip   string // the address of the next one; this one stays undecided
	Agent  bool   // a comment may go to the agent
	May    bool
	Pull   bool // it may be delivered as a pull request
}

func showReview(v *dashboard.Visit) error {
	rec, err := dashboard.Ask(v, operation.Get, operation.Ref{ID: v.R.PathValue("id")})
	if err != nil {
		return err
	}
	batch := v.R.URL.Query().Get("batch")
	d := decision{
		Epoch: rec.Epoch, Batch: batch, Skip: inbox(batch, rec.ID),
		May: rec.State == jobs.Finished && v.May(operation.Review.Row), Agent: v.May(operation.Resume.Row),
	}
	if d.Pull, err = canOpen(v, rec); err != nil {
		return err
	}
	if d.Diff, err = diffOf(v); err != nil {
		return err
	}
	all, err := checksOf(v)
	if err != nil {
		return err
	}
	for _, row := range all {
		if row.Attempt == rec.Attempt {
			d.Checks = append(d.Checks, row)
		}
	}
	return render(v, "review", d)
}

// onward is where a form of the review leads; empty for forms elsewhere.
func onward(r *http.Request) string {
	if r.PostFormValue("inbox") == "" {
		return ""
	}
	return inbox(r.PostFormValue("batch"), "")
}
