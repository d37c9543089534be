// Package jobpage is the page of a job on the dashboard: its state and what keeps it
// there, its session as it happens, what it left, and what can be done with it.
//
//	GET …/{id}              the newest events, and the head
//	GET …/{id}/older        events before a number, as a fragment
//	GET …/{id}/live         events as they come, each as a fragment, numbered as in the log
//	GET …/{id}/head         the head, as a fragment
//	GET …/{id}/{tab}        diff, checks, review, attempts, terminal, artifacts, events, job
//	GET /ui/review          leads to the review of the next result
//	POST …/{id}/{action}    send, answer, cancel, …
//
// A page that follows a session has each of its events once, and in order: it begins
// behind the last event that it was made with, and each fragment tells the number to go on
// behind. So a server that restarts, or a connection that is cut, loses nothing.
package jobpage

import (
	"embed"
	"errors"
	"net/http"
	"strconv"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/dashboard/transcript"
	"github.com/penstock-run/penstock/dispatcher/internal/sse"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
)

//go:embed templates static
var files embed.FS

var page = dashboard.ParseTemplate(files, "templates/*.html")

const (
	// windowEvents and windowBytes bound what a page begins with; older events follow as
	// its reader scrolls.
	windowEvents = 500
	windowBytes  = 160 << 10
)

// Section returns the pages.
func Section() dashboard.Section {
	routes := []dashboard.Route{
		{Pattern: "GET /ui/jobs/{id}", Row: operation.Events.Row, Serve: session},
		{Pattern: "GET /ui/jobs/{id}/older", Row: operation.Events.Row, Serve: older},
		{Pattern: "GET /ui/jobs/{id}/live", Row: operation.Events.Row, Serve: live},
		{Pattern: "GET /ui/jobs/{id}/head", Row: operation.Get.Row, Serve: headFragment},
		{Pattern: "GET /ui/jobs/{id}/diff", Row: operation.Patch.Row, Serve: showDiff},
		{Pattern: "GET /ui/jobs/{id}/checks", Row: operation.Events.Row, Serve: showChecks},
		{Pattern: "GET /ui/jobs/{id}/review", Row: operation.Patch.Row, Serve: showReview},
		{Pattern: "GET /ui/review", Row: operation.List.Row, Serve: nextResult},
		{Pattern: "GET /ui/jobs/{id}/attempts", Row: operation.Events.Row, Serve: showAttempts},
		{Pattern: "GET /ui/jobs/{id}/terminal", Row: route.Attach.Row, Serve: showTerminal},
		{Pattern: "GET /ui/jobs/{id}/artifacts", Row: operation.Artifacts.Row, Serve: showArtifacts},
		{Pattern: "GET /ui/jobs/{id}/events", Row: operation.Events.Row, Serve: showRaw},
		{Pattern: "GET /ui/jobs/{id}/job", Row: operation.Show.Row, Serve: showJob},
	}
	return dashboard.Section{Routes: append(routes, actionRoutes()...), Static: files}
}

// sessionTab is the dot of the tab with the session.
type sessionTab struct {
	transcript.Window
	Base   string
	Before bool // older events are shown, and nothing is followed
	Follow bool
}

func session(v *dashboard.Visit) error {
	tab, err := newSessionTab(v)
	if err != nil {
		return err
	}
	return render(v, "session", tab)
}

// newSessionTab reads the newest events, or the newest of those before a number.
func newSessionTab(v *dashboard.Visit) (sessionTab, error) {
	before, err := number(v, "before")
	if err != nil {
		return sessionTab{}, err
	}
	tab := sessionTab{Base: base(v), Before: before > 0, Follow: before == 0}
	tab.Window, err = window(v, before)
	return tab, err
}

// window renders the newest events before a number; before zero, the newest of all.
func window(v *dashboard.Visit, before uint64) (transcript.Window, error) {
	asking, err := v.Client(operation.Events.Row)
	if err != nil {
		return transcript.Window{}, err
	}
	events, err := asking.Before(v.Context(), v.R.PathValue("id"), before, windowEvents)
	if err != nil {
		return transcript.Window{}, err
	}
	o := options(v)
	o.Most = windowBytes
	return transcript.Render(events, o)
}

func options(v *dashboard.Visit) transcript.Options {
	return transcript.Options{Base: base(v), Answer: v.May(operation.Send.Row)}
}

// older answers with a fragment of events before a number.
func older(v *dashboard.Visit) error {
	tab, err := newSessionTab(v)
	if err != nil {
		return err
	}
	return fragment(v, "older", tab)
}

// headFragment answers with the head of the page as it is now.
func headFragment(v *dashboard.Visit) error {
	h, err := newHead(v)
	if err != nil {
		return err
	}
	return fragment(v, "job-head", h)
}

// live sends events behind a number as they come.
func live(v *dashboard.Visit) error {
	after, err := number(v, "after")
	if err != nil {
		return err
	}
	after, _, err = sse.After(v.R, after)
	if err != nil {
		return err
	}
	asking, err := v.Client(operation.Events.Row)
	if err != nil {
		return err
	}
	rec, err := asking.Get(v.Context(), v.R.PathValue("id"))
	if err != nil {
		return err
	}
	o := options(v)
	stream := sse.Stream[jobs.Event]{Event: func(e jobs.Event) (sse.Event, error) {
		html, err := transcript.Fragment(e, o)
		return sse.Event{ID: strconv.FormatUint(e.Seq, 10), Name: "fragment", Data: html}, err
	}}
	err = stream.Serve(v.Context(), v, asking.Follow(v.Context(), rec.ID, after))
	if err != nil && v.Context().Err() == nil && !errors.Is(err, client.ErrNoDispatcher) {
		panic(http.ErrAbortHandler) // the reader must not take what it has for the whole
	}
	return nil
}

// number reads the number of an event from the address.
func number(v *dashboard.Visit, name string) (uint64, error) {
	text := v.R.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, &jobs.InvalidError{What: "address", Fields: []jobs.FieldError{{Field: name, Reason: "is not the number of an event"}}}
	}
	return n, nil
}

// base is the address of the job's page.
func base(v *dashboard.Visit) string { return "/ui/jobs/" + v.R.PathValue("id") }

// fragment answers with a part of a page.
func fragment(v *dashboard.Visit, name string, dot any) error {
	v.Header().Set("Content-Type", "text/html; charset=utf-8")
	return page.Execute(v, name, dot)
}
