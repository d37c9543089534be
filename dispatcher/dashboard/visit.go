package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

// sayTime is how long a browser may take to receive a part of a stream.
const sayTime = 30 * time.Second

// A Visit is a request for a page, and the writer of the answer to it.
type Visit struct {
	http.ResponseWriter
	R   *http.Request
	Who httpapi.Identity

	s       *Server
	refused error // why the request has no identity; nil: it has one
	// asked is when the oldest of the shared answers was asked for that the page has, and
	// until is when the last of them is asked for again.
	asked, until time.Time
}

// Unwrap is for [http.ResponseController].
func (v *Visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// Context ends when the browser is gone. That of a request for an event stream ends with
// the server, too.
func (v *Visit) Context() context.Context { return v.R.Context() }

// May reports whether the identity may ask for an operation here. A template writes a
// button only then.
func (v *Visit) May(row operation.Row) bool { return v.permit(row) == nil }

// OpensPullRequests reports whether the pool opens pull requests in a repository.
func (v *Visit) OpensPullRequests(repo string) bool {
	opens := v.s.cfg.PullRequests
	return opens != nil && opens(jobs.Job{Repo: jobs.Repo{URL: repo}}) == nil
}

// permit refuses an operation that the identity may not ask for here.
func (v *Visit) permit(row operation.Row) error {
	switch {
	case row.Changes && v.s.cfg.ReadOnly:
		return &jobs.CodedError{Code: jobs.CodeForbidden, Message: "not allowed: this dashboard is for reading only"}
	case row.Name == "" || v.Who.Role != "" && row.Allows(v.Who.Role):
		return nil
	}
	return &jobs.CodedError{Code: jobs.CodeForbidden, Message: fmt.Sprintf("not allowed: role %q may not ask for %s", v.Who.Role, row.Name)}
}

// Client returns a client that asks on behalf of the identity, for callers who need one of
// its methods to ask for an operation. It is an error if the identity may not.
func (v *Visit) Client(row operation.Row) (*client.Client, error) {
	if err := v.permit(row); err != nil {
		return nil, err
	}
	return v.s.cfg.Client.As("http").OnBehalf(v.Who.Name, v.Who.Role, "http"), nil
}

// Ask asks for an operation on behalf of the identity. It is an error if that may not.
func Ask[Q, A any](v *Visit, op operation.Operation[Q, A], question Q) (A, error) {
	asking, err := v.Client(op.Row)
	if err != nil {
		var none A
		return none, err
	}
	return client.Ask(v.Context(), asking, op, question)
}

// A Page is what a template is to show within the layout.
type Page struct {
	Title string
	Nav   string // the entry of the navigation that the page belongs to
	// Refresh has the browser ask for the page again while people look at it.
	Refresh bool
	Status  int // of the answer; 0: 200
	Data    any // the dot of the template "main"
}

// Render answers with a page.
func (v *Visit) Render(t *Template, p Page) error {
	var page bytes.Buffer // an error must not leave half a page
	if err := t.Execute(&page, "layout", v.layout(p)); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	v.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		v.WriteHeader(p.Status)
	}
	_, _ = page.WriteTo(v) // if this fails the browser is gone
	return nil
}

// Redirect sends the browser to a page of ours, as the answer to an action. Notices of
// [notices] are shown there if the address has their names.
func (v *Visit) Redirect(address string) error {
	http.Redirect(v, v.R, local(address), http.StatusSeeOther)
	return nil
}

// Back is the address of the page that the form of an action stands on, which the form
// tells, with a notice about what was done.
func (v *Visit) Back(fallback, notice string, count int) string {
	address := v.R.PostFormValue("back")
	if address == "" {
		address = fallback
	}
	u, err := url.Parse(local(address))
	if err != nil {
		return fallback
	}
	query := u.Query()
	query.Set("done", notice)
	query.Del("n")
	if count > 0 {
		query.Set("n", fmt.Sprint(count))
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// MayTake lets the answer to an action come later than that of others.
func (v *Visit) MayTake(d time.Duration) {
	_ = http.NewResponseController(v).SetWriteDeadline(time.Now().Add(d + sayTime)) // every connection of the server has one
}

// Say sends a part of a stream, which the browser must take in time.
func (v *Visit) Say(text []byte) error {
	control := http.NewResponseController(v)
	if err := control.SetWriteDeadline(time.Now().Add(sayTime)); err != nil {
		return err
	}
	if _, err := v.Write(text); err != nil {
		return err
	}
	return control.Flush()
}

// fail answers with a page about an error. A browser without an identity is sent to the
// login.
func (v *Visit) fail(err error) {
	if errors.Is(err, httpapi.ErrUnauthenticated) {
		v.sendToLogin()
		return
	}
	problem := httpapi.ProblemOf(err, v.Header().Get("X-Request-Id"))
	if problem.Status >= http.StatusInternalServerError {
		v.s.cfg.Logger.Warn("a page could not be made", "request", problem.RequestID, "route", v.R.Pattern, "code", problem.Code, "err", err)
	}
	if problem.Status < http.StatusInternalServerError && problem.Status != http.StatusForbidden {
		problem.Hint = "" // it is for those who write requests
	}
	if problem.Status == http.StatusServiceUnavailable {
		v.Header().Set("Retry-After", "1")
	}
	if err := v.Render(errorPage, Page{Title: http.StatusText(problem.Status), Status: problem.Status, Data: problem}); err != nil {
		panic(err) // the template is ours
	}
}

func (v *Visit) sendToLogin() {
	login := "/ui/login"
	if v.R.Method == http.MethodGet && v.R.Header.Get("HX-Request") == "" {
		login += "?" + url.Values{"next": {v.R.URL.RequestURI()}}.Encode()
	}
	if v.R.Header.Get("HX-Request") != "" { // htmx would put the login into the page
		v.Header().Set("HX-Redirect", login)
		v.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(v, v.R, login, http.StatusSeeOther)
}

// serveUnknown answers a request that has no route.
func (v *Visit) serveUnknown() {
	if v.refused != nil {
		v.fail(v.refused)
		return
	}
	v.fail(&jobs.CodedError{Code: jobs.CodeNotFound, Message: "there is no page " + v.R.URL.Path})
}
