package poolpages

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/internal/bulk"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// rowsOfAPage is how many rows a list has on a page.
	rowsOfAPage = 50
	// searched is how many jobs are looked at for what the pool has no filter for.
	searched = 5000
	// mostChecked bounds how many jobs one action acts on.
	mostChecked = 500
)

var jobsPage = page("jobs")

func jobRoutes() []dashboard.Route {
	return []dashboard.Route{
		{Pattern: "GET /ui/jobs", Row: operation.List.Row, Serve: listJobs},
		{Pattern: "POST /ui/bulk/cancel", Row: operation.Cancel.Row, Serve: cancelChecked},
		{Pattern: "POST /ui/bulk/retry", Row: operation.Retry.Row, Serve: retryChecked},
	}
}

// A jobFilter selects jobs. The last three the pool has no filter for: they are looked for
// among the newest.
type jobFilter struct {
	Queue, State, Outcome, Batch string
	Review                       string
	Reason, Label, Text          string
	After                        string
}

func readFilter(query url.Values) jobFilter {
	field := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	return jobFilter{
		Queue: field("queue"), State: field("state"), Outcome: field("outcome"), Batch: field("batch"),
		Review: field("review"), Reason: field("reason"), Label: field("label"), Text: field("q"), After: field("after"),
	}
}

// query is the filter as an address has it.
func (f jobFilter) query() string {
	query := url.Values{}
	for name, value := range map[string]string{
		"queue": f.Queue, "state": f.State, "outcome": f.Outcome, "batch": f.Batch, "review": f.Review, "reason": f.Reason, "label": f.Label, "q": f.Text, "after": f.After,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query.Encode()
}

// searches reports whether jobs have to be looked at one by one.
func (f jobFilter) searches() bool { return f.Reason != "" || f.Label != "" || f.Text != "" }

// Empty reports whether it selects all.
func (f jobFilter) Empty() bool { f.After = ""; return f == jobFilter{} }

func (f jobFilter) request(limit int) operation.ListRequest {
	return operation.ListRequest{
		Queue: f.Queue, State: jobs.State(f.State), Outcome: jobs.Outcome(f.Outcome), Batch: f.Batch, Review: jobs.ReviewState(f.Review), After: f.After, Newest: true, Limit: limit,
	}
}

// matches reports whether a job is what is searched for.
func (f jobFilter) matches(r jobs.Record) bool {
	if f.Reason != "" && string(r.Reason) != f.Reason || f.Review != "" && string(r.Reviewed()) != f.Review {
		return false
	}
	if name, value, has := strings.Cut(f.Label, "="); f.Label != "" {
		is, ok := r.Labels[name]
		if !ok || has && is != value {
			return false
		}
	}
	text := strings.ToLower(f.Text)
	return slices.ContainsFunc([]string{r.Title, r.ID, r.Item, r.Key, r.Message, r.Repo, r.Agent}, func(field string) bool {
		return strings.Contains(strings.ToLower(field), text)
	})
}

// jobList is the dot of the page of jobs.
type jobList struct {
	Filter   jobFilter
	Jobs     []jobs.Record
	Next     string // the address of the next page
	First    string // that of the first one, where this is another one
	Searched int    // how many jobs were looked at, if not all
	States   []jobs.State
	Outcomes []jobs.Outcome
	Reviews  []jobs.ReviewState
	Cancel   bool
	Retry    bool
	Back     string
	// CancelAll and RetryAll are the addresses that ask whether to change all that match;
	// empty where the filter matches every job.
	CancelAll, RetryAll string
}

func listJobs(v *dashboard.Visit) error {
	f := readFilter(v.R.URL.Query())
	list := jobList{
		Filter: f, Cancel: v.May(operation.Cancel.Row), Retry: v.May(operation.Retry.Row), Back: v.R.URL.RequestURI(),
		States:   []jobs.State{jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished},
		Outcomes: []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip},
		Reviews:  []jobs.ReviewState{jobs.Unreviewed, jobs.Accepted, jobs.Rejected, jobs.Delivered},
	}
	if !f.Empty() {
		query := selecting(v.R.URL.Query())
		list.CancelAll, list.RetryAll = cancelJobs.link(v, query), retryJobs.link(v, query)
	}
	more, err := list.read(v, f)
	if err != nil {
		return err
	}
	if more && len(list.Jobs) > 0 {
		f.After = list.Jobs[len(list.Jobs)-1].ID
		list.Next = "/ui/jobs?" + f.query()
	}
	if list.Filter.After != "" {
		f.After = ""
		list.First = "/ui/jobs?" + f.query()
	}
	return v.Render(jobsPage, dashboard.Page{Title: "Jobs", Nav: "Jobs", Refresh: true, Data: list})
}

// read fills in the rows, and tells whether there are more.
func (l *jobList) read(v *dashboard.Visit, f jobFilter) (more bool, err error) {
	if !f.searches() {
		page, err := dashboard.Look(v, operation.List, f.request(rowsOfAPage))
		l.Jobs = page.Jobs
		return page.Next != "", err
	}
	found, cut, err := lookAll(v, f.request(0), searched)
	if cut {
		l.Searched = len(found)
	}
	for _, rec := range found {
		if !f.matches(rec) {
			continue
		}
		if len(l.Jobs) == rowsOfAPage {
			return true, err
		}
		l.Jobs = append(l.Jobs, rec)
	}
	return false, err
}

// lookAll returns up to so many jobs, and whether there are more.
func lookAll(v *dashboard.Visit, request operation.ListRequest, most int) (all []jobs.Record, more bool, err error) {
	for len(all) < most {
		page, err := dashboard.Look(v, operation.List, request)
		if err != nil {
			return nil, false, err
		}
		all = append(all, page.Jobs...)
		if request.After = page.Next; page.Next == "" {
			return all, false, nil
		}
	}
	return all, true, nil
}

func cancelChecked(v *dashboard.Visit) error { return onChecked(v, bulk.Cancel, "cancelled") }

func retryChecked(v *dashboard.Visit) error { return onChecked(v, bulk.Retry, "retried") }

// onChecked acts on the jobs that were checked, one after the other. Jobs that have changed
// since the page was made are no error.
func onChecked(v *dashboard.Visit, change bulk.Change, notice string) error {
	ids := v.R.PostForm["id"]
	switch {
	case len(ids) == 0:
		return v.Redirect(v.Back("/ui/jobs", "nothing-checked", 0))
	case len(ids) > mostChecked:
		return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "id", Reason: "stands there more than 500 times"}}}
	}
	asking, err := v.Client(change.Row)
	if err != nil {
		return err
	}
	v.MayTake(5 * time.Minute)
	done, _, err := bulk.Apply(ids, func(id string) error { return change.Do(v.Context(), asking, id) })
	if err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/jobs", notice, done))
}
