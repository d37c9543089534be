package jobpage

import (
	"cmp"
	"slices"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
	"github.com/penstock-run/penstock/jobs/why"
)

// A head is what stands at the top of each tab.
type head struct {
	Base     string
	Record   jobs.Record
	Title    string
	Standing why.Standing
	Beside   []beside // jobs that change the same files
	Spent    string
	Finished bool
	Failed   bool
	Again    int   // seconds after which a browser asks again; 0: nothing changes any more
	Pull     *pull // nil: there is nothing to say of a pull request
	Actions  []action
	Send     bool // a message may be sent
}

// beside is another job, and what it changes as well.
type beside struct{ Job, Text string }

func newHead(v *dashboard.Visit) (head, error) {
	ref := operation.Ref{ID: v.R.PathValue("id")}
	rec, err := dashboard.Ask(v, operation.Get, ref)
	if err != nil {
		return head{}, err
	}
	h := head{Base: base(v), Record: rec, Finished: rec.State == jobs.Finished}
	h.Title = visible.Line(cmp.Or(rec.Title, "Job "+rec.ID))
	h.Record.Repo = visible.Line(rec.Repo)
	if h.Standing, err = dashboard.Ask(v, operation.Why, ref); err != nil {
		return head{}, err
	}
	h.Standing.Message, h.Standing.Change = visible.Line(h.Standing.Message), visible.Line(h.Standing.Change)
	for _, o := range h.Standing.Overlaps {
		h.Beside = append(h.Beside, beside{o.Job, visible.Line(o.String())})
	}
	h.Failed = h.Finished && rec.Outcome != jobs.Success && rec.Outcome != jobs.Skip
	switch rec.State {
	case jobs.Finished:
		if rec.PullDue() {
			h.Again = 3
		}
	case jobs.Executing:
		h.Again = 60 // the events of the session tell of changes
	default:
		h.Again = 15
	}
	spent := rec.SpentBefore.Add(rec.LastAttempt)
	h.Spent = summary.Join(summary.Tokens(spent.Usage), summary.Dollars(spent.CostUSD))
	h.Send = v.May(operation.Send.Row)
	h.Actions = slices.DeleteFunc(actionsOf(rec), func(a action) bool { return !v.May(a.row) })
	h.Pull = pullOf(rec)
	may, err := canOpen(v, rec)
	if may {
		h.Actions = append(h.Actions, pullAction(rec.Epoch))
	}
	return h, err
}

// A tab is a part of the page, with an address of its own.
type tab struct{ Name, Path, Title string }

var tabs = []tab{
	{"session", "", "Session"}, {"diff", "/diff", "Diff"}, {"checks", "/checks", "Checks"}, {"review", "/review", "Review"}, {"attempts", "/attempts", "Attempts"},
	{"terminal", "/terminal", "Terminal"}, {"artifacts", "/artifacts", "Artifacts"}, {"events", "/events", "Raw events"}, {"job", "/job", "Job"},
}

// A view is the dot of a page.
type view struct {
	Head head
	Tab  string
	Tabs []tab
	Data any
}

// render answers with a tab of the page.
func render(v *dashboard.Visit, name string, data any) error {
	h, err := newHead(v)
	if err != nil {
		return err
	}
	return v.Render(page, dashboard.Page{Title: h.Title, Nav: "Jobs", Data: view{Head: h, Tab: name, Tabs: visibleTabs(v), Data: data}})
}

// visibleTabs leaves out what the identity may not read.
func visibleTabs(v *dashboard.Visit) []tab {
	return slices.DeleteFunc(slices.Clone(tabs), func(t tab) bool {
		return t.Name == "job" && !v.May(operation.Show.Row) || t.Name == "terminal" && !v.May(route.Attach.Row)
	})
}
