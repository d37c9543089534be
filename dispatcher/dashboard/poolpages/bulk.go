package poolpages

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/internal/bulk"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// bulkMost bounds what one answer changes, and bulkShown the rows of a page about that.
	bulkMost  = 1000
	bulkShown = 10
)

var bulkPage = page("bulk")

func bulkRoutes() []dashboard.Route {
	var routes []dashboard.Route
	for _, b := range []many{cancelJobs, retryJobs, retryLetters, dropLetters} {
		routes = append(routes,
			dashboard.Route{Pattern: "GET " + b.path(), Row: b.row, Serve: b.ask},
			dashboard.Route{Pattern: "POST " + b.path(), Row: b.row, Serve: b.act})
	}
	return routes
}

// A many is what is done to all jobs, or all dead letters, that a filter matches: once they
// were counted, and if there are no more of them by then.
type many struct {
	of, name string // jobs retry
	row      operation.Row
	list     string // the page of the list
	verb     string // "Retry" 12 jobs
	did      string // 12 jobs "run again"
	one, all string // what it is done to
	danger   bool
	// selects returns what a filter matches that can be changed so.
	selects func(v *dashboard.Visit, filter url.Values) ([]selected, error)
	do      func(v *dashboard.Visit, asking *client.Client, id string) error
}

// selected is a job or a dead letter that a filter matches.
type selected struct{ ID, Job, Title, State string }

var (
	cancelJobs = many{
		of: "jobs", name: "cancel", row: operation.Cancel.Row, list: "/ui/jobs", verb: "Cancel", did: "cancelled", one: "job", all: "jobs", danger: true,
		selects: selectsJobs(bulk.Cancel), do: changesJob(bulk.Cancel),
	}
	retryJobs = many{
		of: "jobs", name: "retry", row: operation.Retry.Row, list: "/ui/jobs", verb: "Retry", did: "running again", one: "job", all: "jobs",
		selects: selectsJobs(bulk.Retry), do: changesJob(bulk.Retry),
	}
	retryLetters = many{
		of: "dead", name: "retry", row: operation.DeadRetry.Row, list: "/ui/dead", verb: "Retry", did: "brought back", one: "dead letter", all: "dead letters",
		selects: selectsLetters(func(l jobs.DeadLetter) bool { return l.Kind != jobs.DeadMessage }),
		do: func(v *dashboard.Visit, asking *client.Client, id string) error {
			return undone(asking.DeadLetters().Retry(v.Context(), id, false))
		},
	}
	dropLetters = many{
		of: "dead", name: "drop", row: operation.DeadDrop.Row, list: "/ui/dead", verb: "Drop", did: "dropped", one: "dead letter", all: "dead letters", danger: true,
		selects: selectsLetters(func(jobs.DeadLetter) bool { return true }),
		do: func(v *dashboard.Visit, asking *client.Client, id string) error {
			return undone(asking.DeadLetters().Drop(v.Context(), id))
		},
	}
)

func (m many) path() string { return "/ui/bulk/" + m.of + "/" + m.name }

// link leads to the question whether to change all that a filter matches. It is empty where
// the identity may not.
func (m many) link(v *dashboard.Visit, filter url.Values) string {
	if !v.May(m.row) {
		return ""
	}
	return m.path() + "?" + filter.Encode()
}

// manyShown is the dot of the page that asks, and of the page that says what came of it.
type manyShown struct {
	Head     string
	Filter   []setting
	Count    int
	Counted  string // "12 jobs"
	First    []selected
	More     int // that are not listed
	Act      string
	Label    string // of the button
	Danger   bool
	Back     string
	Grown    bool // there are more than were counted before
	Done     bool
	Did      string // "12 jobs are running again"
	Refused  []refusal
	Refusals int
	Jobs     bool // and no dead letters
}

// A setting is a field of a filter.
type setting struct{ Name, Value string }

// A refusal is why some were not changed.
type refusal struct {
	Why   string
	Count int
	IDs   []string
}

// shown begins a page about what a filter has selected.
func (m many) shown(filter url.Values, found []selected) manyShown {
	s := manyShown{
		Count: len(found), Counted: m.count(len(found)), First: found[:min(len(found), bulkShown)], More: max(0, len(found)-bulkShown),
		Act: m.path(), Danger: m.danger, Jobs: m.of == "jobs", Back: m.list + "?" + filter.Encode(),
	}
	s.Head, s.Label = m.verb+" "+s.Counted, m.verb+" "+s.Counted
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		s.Filter = append(s.Filter, setting{name, filter.Get(name)})
	}
	return s
}

func (m many) count(n int) string {
	if n == 1 {
		return "1 " + m.one
	}
	return fmt.Sprint(n, " ", m.all)
}

// ask counts what would be changed.
func (m many) ask(v *dashboard.Visit) error {
	filter, err := m.filter(v.R.URL.Query())
	if err != nil {
		return err
	}
	found, err := m.selects(v, filter)
	if err != nil {
		return err
	}
	return m.render(v, m.shown(filter, found), 0)
}

// act changes what was counted.
func (m many) act(v *dashboard.Visit) error {
	filter, err := m.filter(v.R.PostForm)
	if err != nil {
		return err
	}
	expect, err := strconv.Atoi(v.R.PostForm.Get("expect"))
	if err != nil || expect < 1 {
		return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "expect", Reason: "is to be the number that the page has asked about"}}}
	}
	v.MayTake(5 * time.Minute)
	found, err := m.selects(v, filter)
	if err != nil {
		return err
	}
	if len(found) > expect {
		s := m.shown(filter, found)
		s.Grown = true
		return m.render(v, s, http.StatusConflict)
	}
	asking, err := v.Client(m.row)
	if err != nil {
		return err
	}
	part := found[:min(len(found), bulkMost)]
	ids := make([]string, len(part))
	for i, one := range part {
		ids[i] = one.ID
	}
	changed, refused, err := bulk.Apply(ids, func(id string) error { return m.do(v, asking, id) })
	if err != nil {
		return fmt.Errorf("%s: %s; the others are as they were: %w", m.count(changed), m.did, err)
	}
	s := m.shown(filter, found[len(part):])
	s.Done, s.Refusals, s.Refused = true, len(refused), refusals(refused)
	s.Head, s.Did = m.count(changed)+" "+m.did, m.count(changed)+" "+m.did
	return m.render(v, s, 0)
}

func (m many) render(v *dashboard.Visit, s manyShown, status int) error {
	nav := "Jobs"
	if m.of == "dead" {
		nav = "Dead letters"
	}
	return v.Render(bulkPage, dashboard.Page{Title: s.Head, Nav: nav, Status: status, Data: s})
}

// filter keeps the fields of a form that select. One that selects all jobs is refused.
func (m many) filter(form url.Values) (url.Values, error) {
	names := []string{"queue", "state", "outcome", "batch", "reason", "label", "q"}
	if m.of == "dead" {
		names = []string{"kind", "queue", "batch", "reason"}
	}
	filter := url.Values{}
	for _, name := range names {
		if value := form.Get(name); value != "" {
			filter.Set(name, value)
		}
	}
	if m.of == "jobs" && readFilter(filter).Empty() {
		return nil, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "filter", Reason: "selects all jobs: choose a queue, a state, a batch or anything else first"}}}
	}
	return filter, nil
}

// refusals says why some were not changed, the most frequent reason first.
func refusals(refused []bulk.Refused) []refusal {
	by := map[jobs.ErrorCode]*refusal{}
	for _, r := range refused {
		if by[r.Code] == nil {
			by[r.Code] = &refusal{Why: r.Error}
		}
		by[r.Code].Count++
		if ids := by[r.Code]; len(ids.IDs) < bulkShown {
			ids.IDs = append(ids.IDs, r.ID)
		}
	}
	var all []refusal
	for _, code := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[code])
	}
	slices.SortStableFunc(all, func(a, b refusal) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

func selectsJobs(change bulk.Change) func(*dashboard.Visit, url.Values) ([]selected, error) {
	return func(v *dashboard.Visit, filter url.Values) ([]selected, error) {
		asking, err := v.Client(operation.List.Row)
		if err != nil {
			return nil, err
		}
		f := readFilter(filter)
		found, err := change.Select(v.Context(), asking, bulk.Selector{
			Batch: f.Batch, Queue: f.Queue, State: jobs.State(f.State), Outcome: jobs.Outcome(f.Outcome), Matches: f.matches,
		})
		all := make([]selected, len(found))
		for i, rec := range found {
			all[i] = selected{rec.ID, rec.ID, rec.Title, cmp.Or(string(rec.Outcome), string(rec.State))}
		}
		return all, err
	}
}

func changesJob(change bulk.Change) func(*dashboard.Visit, *client.Client, string) error {
	return func(v *dashboard.Visit, asking *client.Client, id string) error {
		return change.Do(v.Context(), asking, id)
	}
}

func selectsLetters(able func(jobs.DeadLetter) bool) func(*dashboard.Visit, url.Values) ([]selected, error) {
	return func(v *dashboard.Visit, filter url.Values) ([]selected, error) {
		asking, err := v.Client(operation.DeadList.Row)
		if err != nil {
			return nil, err
		}
		var all []selected
		for letter, err := range asking.DeadLetters().List(v.Context(), readDeadFilter(filter)) {
			if err != nil {
				return nil, err
			}
			if able(letter) {
				all = append(all, selected{letter.ID, letter.Record.ID, letter.Record.Title, string(letter.Kind)})
			}
		}
		return all, nil
	}
}

// undone is the error of a dead letter about which nothing could be done.
func undone(done operation.DeadDone, err error) error {
	if err == nil && done.Did == "nothing" {
		return &jobs.CodedError{Code: jobs.CodeNotRetryable, Message: cmp.Or(done.Error, "nothing could be done")}
	}
	return err
}
