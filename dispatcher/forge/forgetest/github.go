// Package forgetest is a GitHub for tests, which fails as it is told to. Its requests and
// answers, and those of other stubs, are checked against what each forge says of its own API,
// where that is installed.
package forgetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Pull is a pull request of the stub.
type Pull struct {
	Number            int
	Repo, Head, Base  string
	Title, Body       string
	Draft, Open       bool
	Labels, Reviewers []string
}

// An Issue is one of the stub. Pull: it is a pull request, which GitHub counts among issues.
type Issue struct {
	Repo         string
	Number       int
	Title, Body  string
	Labels       []string
	Closed, Pull bool
}

// A Fault is an answer that the stub gives once instead of its own.
type Fault struct {
	Status int
	Header map[string]string
	Body   string
	// Drop: the request is carried out, and its answer is lost. Held, if not nil, is closed
	// once it was carried out; the answer is lost when the request ends.
	Drop bool
	Held chan struct{}
}

// The operations of the stub.
const (
	FindIssues     = "GET /search/issues"
	ListPulls      = "GET /repos/{owner}/{repo}/pulls"
	CreatePull     = "POST /repos/{owner}/{repo}/pulls"
	UpdatePull     = "PATCH /repos/{owner}/{repo}/pulls/{pull_number}"
	GetRepo        = "GET /repos/{owner}/{repo}"
	AddLabels      = "POST /repos/{owner}/{repo}/issues/{issue_number}/labels"
	AskReview      = "POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers"
	FindApp        = "GET /repos/{owner}/{repo}/installation"
	ListComments   = "GET /repos/{owner}/{repo}/issues/{issue_number}/comments"
	AddComment     = "POST /repos/{owner}/{repo}/issues/{issue_number}/comments"
	GetPermission  = "GET /repos/{owner}/{repo}/collaborators/{username}/permission"
	ReviewComments = "GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/comments"
	ListChecks     = "GET /repos/{owner}/{repo}/commits/{ref}/check-runs"
	AddCheck       = "POST /repos/{owner}/{repo}/check-runs"
	AddStatus      = "POST /repos/{owner}/{repo}/statuses/{sha}"
	GetToken       = "POST /app/installations/{installation_id}/access_tokens"
)

// A GitHub is a stub. Its fields may be changed before the first request.
type GitHub struct {
	testing.TB
	URL   string // of its API
	Token string // that it takes; with none, it takes requests without one
	// Issues are those that a search may find.
	Issues []Issue
	// Writers are the users who may write to all repositories.
	Writers []string
	// Remarks are the comments of reviews on lines, by the reviews' numbers.
	Remarks map[string][]Remark
	// Proof checks what an App proves itself with; nil: there is none.
	Proof func(jwt string) error
	// Permissions are those of the App.
	Permissions map[string]string
	// Before, unless nil, is called with each operation that is asked for.
	Before func(operation string)
	// Tell, unless nil, is told of each request that was answered, with its path below the API.
	Tell func(method, path string, status int)
	// Else answers what is not of the API: the repositories.
	Else http.Handler

	description *description // nil: it is not installed
	server      *httptest.Server
	mu          sync.Mutex
	pulls       []Pull
	comments    []Comment
	checks      []Check
	faults      map[string][]Fault
	calls       map[string]int
}

// NewGitHub starts a stub that takes a token.
func NewGitHub(t testing.TB, token string) *GitHub {
	t.Helper()
	g := &GitHub{TB: t, Token: token, faults: map[string][]Fault{}, calls: map[string]int{}, description: OfGitHub.describe(t)}
	g.Permissions = map[string]string{"metadata": "read", "contents": "read", "pull_requests": "write"}
	mux := http.NewServeMux()
	for operation, answer := range map[string]func(*http.Request, []byte) (int, any){
		FindIssues: g.findIssues, ListPulls: g.list, CreatePull: g.create, UpdatePull: g.update, GetRepo: by(g, repository),
		AddLabels: g.label, AskReview: g.review, FindApp: g.installation, GetToken: g.makeToken,
		ListComments: by(g, listComments), AddComment: by(g, addComment), GetPermission: by(g, permission), ReviewComments: by(g, reviewComments),
		ListChecks: by(g, listChecks), AddCheck: by(g, addCheck), AddStatus: by(g, addStatus),
	} {
		method, path, _ := strings.Cut(operation, " ")
		mux.HandleFunc(method+" /api/v3"+path, func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, operation, answer) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if g.Else == nil || strings.HasPrefix(r.URL.Path, "/api/") {
			g.Errorf("GitHub was asked for %s %s", r.Method, r.URL.Path)
			http.NotFound(w, r)
			return
		}
		g.Else.ServeHTTP(w, r)
	})
	g.server = httptest.NewServer(mux)
	t.Cleanup(g.server.Close)
	g.URL = g.server.URL + "/api/v3"
	return g
}

func by(g *GitHub, f func(*GitHub, *http.Request, []byte) (int, any)) func(*http.Request, []byte) (int, any) {
	return func(r *http.Request, body []byte) (int, any) { return f(g, r, body) }
}

// Repository is the address of a repository.
func (g *GitHub) Repository(name string) string { return g.server.URL + "/" + name + ".git" }

// Next has an operation fail, once for each fault.
func (g *GitHub) Next(operation string, faults ...Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[operation] = append(g.faults[operation], faults...)
}

// Pulls are all pull requests.
func (g *GitHub) Pulls() []Pull {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.pulls)
}

// Change changes a pull request, as a person does.
func (g *GitHub) Change(number int, change func(*Pull)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.pulls[number-1])
}

// Calls is how often an operation was asked for.
func (g *GitHub) Calls(operation string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[operation]
}

func (g *GitHub) fault(operation string) (f Fault, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[operation]++
	if list := g.faults[operation]; len(list) > 0 {
		f, g.faults[operation] = list[0], list[1:]
		return f, true
	}
	return f, false
}

func (g *GitHub) serve(w http.ResponseWriter, r *http.Request, operation string, answer func(*http.Request, []byte) (int, any)) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		g.Errorf("%s: %v", operation, err)
	}
	g.description.request(g, operation, r, body)
	if g.Before != nil {
		g.Before(operation)
	}
	fault, failing := g.fault(operation)
	status, said := http.StatusUnauthorized, any(message("Bad credentials"))
	switch {
	case failing && fault.Status != 0:
		status = fault.Status
		if json.Unmarshal([]byte(cmp.Or(fault.Body, `{"message":"It failed"}`)), &said) != nil {
			said = fault.Body
		}
	case g.knows(operation, r.Header.Get("Authorization")):
		status, said = answer(r, body)
	}
	if fault.Held != nil {
		close(fault.Held)
		<-r.Context().Done()
	}
	if fault.Drop || fault.Held != nil {
		panic(http.ErrAbortHandler)
	}
	data, err := json.Marshal(said)
	if err != nil {
		g.Errorf("%s: %v", operation, err)
	}
	g.description.answer(g, operation, status, data)
	if g.Tell != nil {
		g.Tell(r.Method, strings.TrimPrefix(r.URL.Path, "/api/v3"), status)
	}
	if operation == FindIssues && status == http.StatusOK {
		g.linkPages(w.Header(), r)
	}
	for name, value := range fault.Header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that is gone reads nothing
}

func (g *GitHub) knows(operation, authorization string) bool {
	value, bearer := strings.CutPrefix(authorization, "Bearer ")
	if g.Token == "" {
		return authorization == ""
	}
	if operation != FindApp && operation != GetToken {
		return bearer && value == g.Token
	}
	if g.Proof == nil {
		return false
	}
	if err := g.Proof(value); err != nil {
		g.Errorf("the App proves itself with %q: %v", value, err)
		return false
	}
	return bearer
}

func message(text string) map[string]any {
	return map[string]any{"message": text, "documentation_url": "https://docs.github.com/rest"}
}

func invalid(text string) (int, any) {
	said := message("Validation Failed")
	said["errors"] = []any{map[string]any{"resource": "PullRequest", "code": "custom", "message": text}}
	return http.StatusUnprocessableEntity, said
}

func repoOf(r *http.Request) string { return r.PathValue("owner") + "/" + r.PathValue("repo") }

// say is an answer: the description's own example, with what this one is about.
func (g *GitHub) say(operation, status string, with map[string]any) map[string]any {
	all := g.description.example(operation, status)
	maps.Copy(all, with)
	return all
}

func (g *GitHub) show(p Pull, operation, status string) map[string]any {
	state := "closed"
	if p.Open {
		state = "open"
	}
	all := g.say(operation, status, map[string]any{"number": p.Number, "html_url": fmt.Sprintf("%s/%s/pull/%d", g.server.URL, p.Repo, p.Number), "title": p.Title, "body": p.Body, "draft": p.Draft, "state": state,
		"requested_teams": []any{}, // the example is not whole there
	})
	head, ok := all["head"].(map[string]any)
	if !ok {
		head = map[string]any{}
	}
	head = maps.Clone(head)
	head["ref"] = p.Head
	all["head"] = head
	return all
}

func (g *GitHub) list(r *http.Request, _ []byte) (int, any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []any{}
	_, head, _ := strings.Cut(r.URL.Query().Get("head"), ":")
	for _, p := range g.pulls {
		if p.Repo == repoOf(r) && p.Open && p.Head == head {
			list = append(list, g.show(p, ListPulls, "200"))
		}
	}
	return http.StatusOK, list
}

func (g *GitHub) create(r *http.Request, body []byte) (int, any) {
	var want struct {
		Title, Head, Base, Body string
		Draft                   bool
	}
	if err := json.Unmarshal(body, &want); err != nil {
		g.Errorf("%s: %v", CreatePull, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pulls {
		if p.Open && p.Repo == repoOf(r) && p.Head == want.Head {
			return invalid("A pull request already exists for " + r.PathValue("owner") + ":" + want.Head + ".")
		}
	}
	if want.Head == "same" {
		return invalid("No commits between " + want.Base + " and same")
	}
	g.pulls = append(g.pulls, Pull{
		Number: len(g.pulls) + 1, Repo: repoOf(r), Head: want.Head, Base: want.Base, Title: want.Title, Body: want.Body, Draft: want.Draft, Open: true,
	})
	return http.StatusCreated, g.show(g.pulls[len(g.pulls)-1], CreatePull, "201")
}

// pull is the one that a request is about. The caller holds mu.
func (g *GitHub) pull(number string) *Pull {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(g.pulls) {
		return nil
	}
	return &g.pulls[n-1]
}

func (g *GitHub) update(r *http.Request, body []byte) (int, any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pull(r.PathValue("pull_number"))
	if p == nil {
		return http.StatusNotFound, message("Not Found")
	}
	var want struct{ Body *string }
	if err := json.Unmarshal(body, &want); err != nil || want.Body == nil {
		g.Errorf("%s: %v in %s", UpdatePull, err, body)
		return invalid("body")
	}
	p.Body = *want.Body
	return http.StatusOK, g.show(*p, UpdatePull, "200")
}

func repository(g *GitHub, _ *http.Request, _ []byte) (int, any) {
	all := g.say(GetRepo, "200", map[string]any{"default_branch": "main", "language": nil})
	for _, name := range []string{"parent", "source", "template_repository"} {
		delete(all, name) // the example is not whole there
	}
	return http.StatusOK, all
}

func (g *GitHub) label(r *http.Request, body []byte) (int, any) {
	var names []string
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&names); err != nil {
		g.Errorf("%s: %v", AddLabels, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pull(r.PathValue("issue_number")); p != nil {
		p.Labels = append(p.Labels, names...)
	}
	return http.StatusOK, []any{}
}

func (g *GitHub) review(r *http.Request, body []byte) (int, any) {
	var who struct{ Reviewers []string }
	if err := json.Unmarshal(body, &who); err != nil {
		g.Errorf("%s: %v", AskReview, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pull(r.PathValue("pull_number"))
	if p == nil {
		return http.StatusNotFound, message("Not Found")
	}
	if slices.Contains(who.Reviewers, "stranger") {
		return invalid("Reviews may only be requested from collaborators.")
	}
	p.Reviewers = append(p.Reviewers, who.Reviewers...)
	return http.StatusCreated, g.show(*p, AskReview, "201")
}

func (g *GitHub) installation(*http.Request, []byte) (int, any) {
	return http.StatusOK, g.say(FindApp, "200", map[string]any{"id": 42, "permissions": g.Permissions})
}

func (g *GitHub) makeToken(r *http.Request, _ []byte) (int, any) {
	if r.PathValue("installation_id") != "42" {
		return http.StatusNotFound, message("Not Found")
	}
	return http.StatusCreated, g.say(GetToken, "201", map[string]any{"token": g.Token, "expires_at": "2999-01-01T00:00:00Z"})
}
