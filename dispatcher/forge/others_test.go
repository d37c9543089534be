package forge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
)

// A server answers requests from a table, and keeps what it was sent.
type server struct {
	*testing.T
	url  string
	mu   sync.Mutex
	sent map[string]string // bodies, by method and path
}

// serve starts a server whose requests and answers are as the forge describes them.
func serve(t *testing.T, by *forgetest.Source, header, credential string, answers map[string]string) *server {
	t.Helper()
	s := &server{T: t, sent: map[string]string{}}
	prefix := map[*forgetest.Source]string{forgetest.OfGitea: "/api/v1", forgetest.OfGitLab: "/api/v4"}[by]
	h := httptest.NewServer(forgetest.Checked(t, by, prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Method + " " + r.URL.EscapedPath()
		if q := r.URL.Query().Get("page"); q != "" && q != "1" {
			asked += " page " + q
		}
		answer, ok := answers[asked]
		if r.Header.Get(header) != credential {
			answer = "401 {\"message\":\"401 Unauthorized\"}"
		} else if !ok {
			t.Errorf("asked for %s?%s", asked, r.URL.RawQuery)
		}
		var body any
		_ = json.NewDecoder(r.Body).Decode(&body)
		data, _ := json.Marshal(body)
		s.mu.Lock()
		s.sent[asked] = string(data)
		s.mu.Unlock()
		status, text, _ := strings.Cut(answer, " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	})))
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) wants(sent map[string]string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for asked, want := range sent {
		if s.sent[asked] != want {
			s.Errorf("%s was sent %s, want %s", asked, s.sent[asked], want)
		}
	}
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	const at = " /api/v4/projects/a%2Fb%2Fc"
	s := serve(t, forgetest.OfGitLab, "Private-Token", "secret", map[string]string{
		"GET" + at:                                     `200 {"default_branch":"trunk"}`,
		"GET" + at + "/merge_requests":                 `200 [{"iid":3,"source_branch":"penstock/1","source_project_id":9,"target_project_id":1},{"iid":4,"web_url":"https://x/4","description":"old","source_branch":"penstock/1","source_project_id":1,"target_project_id":1}]`,
		"POST" + at + "/merge_requests":                `201 {"iid":4,"web_url":"https://x/4"}`,
		"PUT" + at + "/merge_requests/4":               `200 {}`,
		"PUT" + at + "/merge_requests/5":               `409 {"message":["Another open merge request already exists for this source branch: !4"]}`,
		"GET /api/v4/users":                            `200 [{"id":77}]`,
		"GET" + at + "/issues/7/notes":                 `200 [{"body":"has MARK"}]`,
		"POST" + at + "/issues/7/notes":                `201 {}`,
		"POST" + at + "/statuses/c1":                   `201 {}`,
		"GET" + at + "/repository/commits/c1/statuses": `200 [{"status":"failed"}]`,
		"GET" + at + "/repository/commits/c2/statuses": `200 [{"status":"success"}]`,
	})
	all, err := forge.Settings{GitLab: forge.TokenSettings{URL: s.url, Token: "secret"}}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	g, ctx := all[0], t.Context()
	found, err := g.Find(ctx, "a/b/c", "penstock/1")
	if err != nil || found == nil || found.Number != 4 || found.Body != "old" {
		t.Errorf("found %+v, %v; want the one that is not of a fork", found, err)
	}
	if made, err := g.Create(ctx, forge.Change{Repo: "a/b/c", Head: "penstock/1", Title: "Fix", Body: "text"}); err != nil || made.URL != "https://x/4" {
		t.Error(made, err)
	}
	s.wants(map[string]string{"POST" + at + "/merge_requests": `{"description":"text","source_branch":"penstock/1","target_branch":"trunk","title":"Draft: Fix"}`})
	if err := g.Update(ctx, "a/b/c", 4, "new"); err != nil {
		t.Error(err)
	}
	s.wants(map[string]string{"PUT" + at + "/merge_requests/4": `{"description":"new"}`})
	if err := g.Decorate(ctx, "a/b/c", 4, []string{"x", "y"}, []string{"ann"}); err != nil {
		t.Error(err)
	}
	s.wants(map[string]string{"PUT" + at + "/merge_requests/4": `{"add_labels":"x,y","reviewer_ids":[77]}`})
	commentsOnce(t, g, forge.Comment{Repo: "a/b/c", Number: 7})
	s.wants(map[string]string{"POST" + at + "/issues/7/notes": `{"body":"OTHER"}`})
	for _, commit := range []string{"c1", "c2"} { // the second one has it
		if err := g.Check(ctx, forge.Check{Repo: "a/b/c", Commit: commit, Passed: true, Summary: "all passed", Page: "https://p/1"}); err != nil {
			t.Error(err)
		}
	}
	s.wants(map[string]string{"POST" + at + "/statuses/c1": `{"description":"all passed","name":"penstock","state":"success","target_url":"https://p/1"}`})
	if err := g.Update(ctx, "a/b/c", 5, ""); kind(err) != forge.Conflict || !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
	}
	t.Run("described", func(t *testing.T) { forgetest.Described(t, forgetest.OfGitLab) })
}

func TestGitea(t *testing.T) {
	t.Parallel()
	const at = " /api/v1/repos/o/r"
	s := serve(t, forgetest.OfGitea, "Authorization", "token secret", map[string]string{
		"GET" + at:                                   `200 {"default_branch":"trunk"}`,
		"GET" + at + "/pulls":                        `200 [{"number":3,"head":{"ref":"penstock/1","repo":{"full_name":"fork/r"}}}]`,
		"GET" + at + "/pulls page 2":                 `200 [{"number":4,"html_url":"https://x/4","body":"old","head":{"ref":"penstock/1","repo":{"full_name":"O/r"}}}]`,
		"POST" + at + "/pulls":                       `201 {"number":4,"html_url":"https://x/4"}`,
		"PATCH" + at + "/pulls/4":                    `201 {}`,
		"GET" + at + "/labels":                       `200 [{"id":5,"name":"agent"}]`,
		"GET" + at + "/labels page 2":                `200 []`,
		"POST" + at + "/issues/4/labels":             `200 []`,
		"POST" + at + "/pulls/4/requested_reviewers": `201 []`,
		"GET" + at + "/issues/7/comments":            `200 [{"body":"has MARK"}]`,
		"POST" + at + "/issues/7/comments":           `201 {}`,
		"POST" + at + "/statuses/c1":                 `201 {}`,
	})
	all, err := forge.Settings{Gitea: forge.TokenSettings{URL: s.url, Token: "secret"}}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	g, ctx := all[0], t.Context()
	found, err := g.Find(ctx, "o/r", "penstock/1")
	if err != nil || found == nil || found.Number != 4 || found.Body != "old" {
		t.Errorf("found %+v, %v; want the one that is not of a fork", found, err)
	}
	if made, err := g.Create(ctx, forge.Change{Repo: "o/r", Head: "penstock/1", Title: "Fix", Body: "text"}); err != nil || made.Number != 4 {
		t.Error(made, err)
	}
	if err := g.Update(ctx, "o/r", 4, "new"); err != nil {
		t.Error(err)
	}
	if err := g.Decorate(ctx, "o/r", 4, []string{"agent"}, []string{"ann"}); err != nil {
		t.Error(err)
	}
	commentsOnce(t, g, forge.Comment{Repo: "o/r", Number: 7})
	if err := g.Check(ctx, forge.Check{Repo: "o/r", Commit: "c1", Summary: "1 of 2 passed"}); err != nil {
		t.Error(err)
	}
	s.wants(map[string]string{
		"POST" + at + "/statuses/c1":                 `{"context":"penstock","description":"1 of 2 passed","state":"failure"}`,
		"POST" + at + "/issues/7/comments":           `{"body":"OTHER"}`,
		"POST" + at + "/pulls":                       `{"base":"trunk","body":"text","head":"penstock/1","title":"WIP: Fix"}`,
		"PATCH" + at + "/pulls/4":                    `{"body":"new"}`,
		"POST" + at + "/issues/4/labels":             `{"labels":[5]}`,
		"POST" + at + "/pulls/4/requested_reviewers": `{"reviewers":["ann"]}`,
	})
	if err := g.Decorate(ctx, "o/r", 4, []string{"none"}, nil); kind(err) != forge.Invalid {
		t.Error(err)
	}
	wrong, err := forge.Settings{Gitea: forge.TokenSettings{URL: s.url, Token: "wrong"}}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong[0].Find(ctx, "o/r", "b"); kind(err) != forge.Denied {
		t.Error(err)
	}
	t.Run("described", func(t *testing.T) { forgetest.Described(t, forgetest.OfGitea) })
}

// commentsOnce writes a comment that is there, and one that is not.
func commentsOnce(t *testing.T, f forge.Forge, c forge.Comment) {
	t.Helper()
	for _, c.Mark = range []string{"OTHER", "MARK"} {
		c.Body = c.Mark
		if err := f.Comment(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
}

func TestIssuesOfForges(t *testing.T) {
	t.Parallel()
	all, err := forge.Settings{
		GitHub: forge.GitHubSettings{Token: "t"}, GitLab: forge.TokenSettings{URL: "https://gitlab.example.com", Token: "t"},
	}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"https://github.com/o/r/issues/7": "o/r 7 true", "https://github.com/o/r/pull/7": " 0 false", "https://github.com/o/r/issues/0": " 0 false",
		"https://github.com/o/r/issues/7?x=@all": " 0 false", "https://evil.example/o/r/issues/7": " 0 false", "https://github.com/o/../issues/7": " 0 false",
		"https://github.com@evil.example/o/r/issues/7": " 0 false", "git@github.com:o/r/issues/7": " 0 false", "https://gitlab.example.com/a/b/c/-/issues/12": " 0 false",
	} {
		repo, number, ok := all[0].Issue(address)
		if got := fmt.Sprint(repo, " ", number, " ", ok); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
	if repo, number, ok := all[1].Issue("https://gitlab.example.com/a/b/c/-/issues/12"); repo != "a/b/c" || number != 12 || !ok {
		t.Error(repo, number, ok)
	}
}
