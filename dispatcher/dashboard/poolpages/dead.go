package poolpages

import (
	"net/url"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var deadPage = page("dead")

func deadRoutes() []dashboard.Route {
	return []dashboard.Route{
		{Pattern: "GET /ui/dead", Row: operation.DeadList.Row, Serve: listDead},
		{Pattern: "POST /ui/dead/{id}/retry", Row: operation.DeadRetry.Row, Serve: retryDead},
		{Pattern: "POST /ui/dead/{id}/drop", Row: operation.DeadDrop.Row, Serve: dropDead},
	}
}

// A deadRow is a dead letter with what can be done about it.
type deadRow struct {
	jobs.DeadLetter
	Advice      string
	Retry, Drop *dashboard.Action
}

// deadList is the dot of the page of dead letters.
type deadList struct {
	Filter operation.DeadRequest
	Kinds  []jobs.Letter
	Rows   []deadRow
	Next   string // the address of the next page
	First  string // that of the first one, where this is another one
	// RetryAll and DropAll are the addresses that ask whether to change all that match.
	RetryAll, DropAll string
}

func readDeadFilter(query url.Values) operation.DeadRequest {
	field := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	return operation.DeadRequest{Kind: jobs.Letter(field("kind")), Queue: field("queue"), Batch: field("batch"), Reason: jobs.Reason(field("reason"))}
}

// selecting is a query without what is about the page that it shows.
func selecting(query url.Values) url.Values {
	filter := url.Values{}
	for name, values := range query {
		if name != "after" && name != "done" && name != "n" && values[0] != "" {
			filter[name] = values
		}
	}
	return filter
}

func listDead(v *dashboard.Visit) error {
	query := v.R.URL.Query()
	list := deadList{Filter: readDeadFilter(query), Kinds: []jobs.Letter{jobs.DeadJob, jobs.DeadSubmission, jobs.DeadMessage}}
	list.Filter.After, list.Filter.Limit = query.Get("after"), rowsOfAPage
	list.RetryAll, list.DropAll = retryLetters.link(v, selecting(query)), dropLetters.link(v, selecting(query))
	page, err := dashboard.Look(v, operation.DeadList, list.Filter)
	if err != nil {
		return err
	}
	for _, letter := range page.Letters {
		list.Rows = append(list.Rows, newDeadRow(v, letter))
	}
	if list.Filter.After != "" {
		query.Del("after")
		list.First = "/ui/dead?" + query.Encode()
	}
	if page.Next != "" {
		query.Set("after", page.Next)
		list.Next = "/ui/dead?" + query.Encode()
	}
	return v.Render(deadPage, dashboard.Page{Title: "Dead letters", Nav: "Dead letters", Refresh: true, Data: list})
}

func newDeadRow(v *dashboard.Visit, letter jobs.DeadLetter) deadRow {
	about := letter.Record.Title
	if about == "" {
		about = letter.ID
	}
	under := "/ui/dead/" + url.PathEscape(letter.ID)
	row := deadRow{DeadLetter: letter, Advice: jobs.Reasons[letter.Record.Reason].Advice}
	if letter.Kind != jobs.DeadMessage {
		row.Retry = v.Action(operation.DeadRetry.Row, dashboard.Action{Path: under + "/retry", Label: "Retry", About: about})
	}
	row.Drop = v.Action(operation.DeadDrop.Row, dashboard.Action{Path: under + "/drop", Label: "Drop", Kind: "danger", About: about, Confirm: "Drop this dead letter? Its job stays as it is."})
	return row
}

func retryDead(v *dashboard.Visit) error {
	done, err := dashboard.Ask(v, operation.DeadRetry, operation.DeadRetryRequest{ID: v.R.PathValue("id")})
	if err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/dead", "letter-"+done.Did, 0))
}

func dropDead(v *dashboard.Visit) error {
	done, err := dashboard.Ask(v, operation.DeadDrop, operation.Ref{ID: v.R.PathValue("id")})
	if err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/dead", "letter-"+done.Did, 0))
}
