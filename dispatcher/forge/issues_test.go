package forge_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
)

// pages are all issues that a search finds, as o/r#1.
func pages(t *testing.T, s forge.GitHubSettings, query string) (names []string, asked int) {
	t.Helper()
	search, err := s.Search(query)
	if err != nil {
		t.Fatal(err)
	}
	for asked = 1; ; asked++ {
		page, err := search.Page(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Issues {
			names = append(names, fmt.Sprintf("%s#%d", i.Repo, i.Number))
		}
		if page.Last {
			return names, asked
		}
	}
}

// A search lists each issue once over its pages, without pull requests, and with what the
// credential is: a token, none, or that of an App, which is for the issues of one repository.
// The stub checks requests and answers against GitHub's description.
func TestIssuesOfASearch(t *testing.T) {
	t.Parallel()
	forgetest.Described(t, forgetest.OfGitHub)
	stub := forgetest.NewGitHub(t, "secret")
	var want []string
	for n := 1; n <= 250; n++ {
		issue := forgetest.Issue{Repo: "o/r", Number: n, Title: fmt.Sprint("Issue ", n), Labels: []string{"bug"}, Pull: n%50 == 0, Closed: n%7 == 0}
		if stub.Issues = append(stub.Issues, issue); !issue.Pull && !issue.Closed {
			want = append(want, fmt.Sprintf("o/r#%d", n))
		}
	}
	stub.Issues = append(stub.Issues, forgetest.Issue{Repo: "o/other", Number: 1, Title: "x", Labels: []string{"bug"}})
	const query = "repo:o/r label:bug is:open"
	if got, asked := pages(t, forge.GitHubSettings{URL: stub.URL, Token: "secret"}, query); !slices.Equal(got, want) || asked != 3 {
		t.Errorf("in %d pages there are %v", asked, got)
	}
	stub.Token = ""
	if got, _ := pages(t, forge.GitHubSettings{URL: stub.URL}, query); !slices.Equal(got, want) {
		t.Errorf("without a credential there are %v", got)
	}
	stub.Token, stub.Proof = "of the App", func(string) error { return nil }
	_, file := appKey(t)
	app := forge.GitHubSettings{URL: stub.URL, AppID: 7, AppKeyFile: file}
	if got, _ := pages(t, app, query); !slices.Equal(got, want) || stub.Calls(forgetest.GetToken) != 1 {
		t.Errorf("as an App there are %v, with %d tokens", got, stub.Calls(forgetest.GetToken))
	}
	for _, query := range []string{"label:bug", "repo:o/r repo:o/s", "repo:o", " "} {
		if _, err := app.Search(query); err == nil {
			t.Errorf("an App searches for %q", query)
		}
	}
}

// What keeps a search from its issues is an error, and never a part of them.
func TestSearchesThatFail(t *testing.T) {
	t.Parallel()
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	search, err := forge.GitHubSettings{URL: server.URL, Token: "secret"}.Search("is:open")
	if err != nil {
		t.Fatal(err)
	}
	const one = `{"total_count":1,"incomplete_results":%t,"items":[{"number":%d,"repository_url":%q}]}`
	for name, c := range map[string]struct {
		status int
		body   string
		want   forge.Kind
	}{
		"limit":          {403, `{"message":"API rate limit exceeded"}`, forge.Busy},
		"no such query":  {422, `{"message":"Validation Failed"}`, forge.Conflict},
		"broken":         {502, `<html>`, forge.Away},
		"wrong token":    {401, `{}`, forge.Denied},
		"half an answer": {200, `{"total_count":1,"items":[`, forge.Away},
		"too slow":       {200, fmt.Sprintf(one, true, 1, "https://x/repos/o/r"), forge.Away},
		"no number":      {200, fmt.Sprintf(one, false, 0, "https://x/repos/o/r"), forge.Invalid},
		"no repository":  {200, fmt.Sprintf(one, false, 1, "https://x/repos"), forge.Invalid},
		"odd repository": {200, fmt.Sprintf(one, false, 1, "https://x/repos/o/%1b"), forge.Invalid},
		"no address":     {200, fmt.Sprintf(one, false, 1, ":"), forge.Invalid},
	} {
		status, body = c.status, c.body
		page, err := search.Page(t.Context(), 1)
		if kind(err) != c.want || len(page.Issues) > 0 {
			t.Errorf("%s: %v, %#v, want %s", name, err, page, c.want)
		}
		if e, ok := errors.AsType[*forge.Error](err); ok && c.want == forge.Busy && e.Wait != 7*time.Second {
			t.Errorf("%s: waits %s", name, e.Wait)
		}
	}
}
