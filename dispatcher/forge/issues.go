package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-github/v92/github"
)

// An Issue is one that a search has found. Its texts are those of strangers.
type Issue struct {
	Repo   string // OWNER/NAME
	Number int
	Title  string
	Body   string
	URL    string // its page
	Author string
	Labels []string
}

// An IssuePage is a part of what a search finds.
type IssuePage struct {
	Issues []Issue
	Total  int // of all pages
	Last   bool
}

// MostIssues is how many results of a search GitHub lists.
const MostIssues = 1000

// issuesAPage is how many GitHub lists at once, at most.
const issuesAPage = 100

// An IssueSearch lists the issues of GitHub that a query finds.
type IssueSearch struct {
	query  string
	client *github.Client
}

// Search prepares a search in the language of GitHub's own search, for issues alone. It has the
// credential of the settings; without one it finds what everybody may read. An App reads the
// issues of one repository, which the query names.
func (s GitHubSettings) Search(query string) (*IssueSearch, error) {
	terms := strings.Fields(query)
	if len(terms) == 0 {
		return nil, errors.New("the search is empty")
	}
	if !slices.Contains(terms, "is:issue") {
		terms = append(terms, "is:issue")
	}
	at, err := s.place()
	if err != nil {
		return nil, err
	}
	found := &IssueSearch{query: strings.Join(terms, " ")}
	put := func(context.Context, http.Header) error { return nil }
	if s.named() {
		g, err := newGitHub(s)
		if err != nil {
			return nil, err
		}
		if put, err = g.reader(terms); err != nil {
			return nil, err
		}
	}
	found.client, err = at.open(at.doer(put))
	return found, err
}

// named reports whether the settings name a credential.
func (s GitHubSettings) named() bool {
	return s.Token != "" || s.TokenFile != "" || s.AppID != 0 || s.AppKeyFile != ""
}

// reader signs requests that read issues.
func (g *gitHub) reader(terms []string) (func(context.Context, http.Header) error, error) {
	owner, name := "", ""
	if g.app != nil {
		for _, term := range terms {
			if repo, ok := strings.CutPrefix(term, "repo:"); ok && name == "" {
				owner, name, _ = strings.Cut(repo, "/")
			} else if ok {
				name = ""
				break
			}
		}
		if !segment().MatchString(owner) || !segment().MatchString(name) {
			return nil, errors.New("a GitHub App searches one repository, and the search has to name it: repo:OWNER/NAME")
		}
	}
	return func(ctx context.Context, h http.Header) error {
		token := g.token
		if g.app != nil {
			token = func() (string, error) { return g.app.tokenFor(ctx, owner+"/"+name, forSearch) }
		}
		value, err := token()
		h.Set("Authorization", "Bearer "+value)
		return err
	}, nil
}

// forSearch is what an App's token for a search may do.
var forSearch = use{" issues", github.InstallationPermissions{Issues: new("read")}}

// Page lists a part of what the search finds, the oldest issue first unless the query has a
// sort of its own. The first page is 1. Pull requests are left out.
func (s *IssueSearch) Page(ctx context.Context, page int) (IssuePage, error) {
	opts := &github.SearchOptions{ListOptions: github.ListOptions{Page: page, PerPage: issuesAPage}}
	if !strings.Contains(s.query, "sort:") {
		opts.Sort, opts.Order = "created", "asc"
	}
	got, answer, err := s.client.Search.Issues(ctx, s.query, opts)
	if err != nil {
		return IssuePage{}, libraryError(err)
	}
	if got.GetIncompleteResults() {
		return IssuePage{}, &Error{Kind: Away, Status: answer.StatusCode, Message: "GitHub did not finish the search in time: narrow it, or try again"}
	}
	found := IssuePage{Total: got.GetTotal(), Last: answer.NextPage == 0 || len(got.Issues) == 0}
	for _, one := range got.Issues {
		if one.IsPullRequest() {
			continue
		}
		issue, err := issueOf(one)
		if err != nil {
			return IssuePage{}, err
		}
		found.Issues = append(found.Issues, issue)
	}
	return found, nil
}

func issueOf(one *github.Issue) (Issue, error) {
	repo := ""
	if u, err := url.Parse(one.GetRepositoryURL()); err == nil {
		if parts := strings.Split(strings.Trim(u.Path, "/"), "/"); len(parts) >= 2 {
			repo = strings.Join(parts[len(parts)-2:], "/")
		}
	}
	owner, name, _ := strings.Cut(repo, "/")
	if !segment().MatchString(owner) || !segment().MatchString(name) || one.GetNumber() <= 0 {
		return Issue{}, &Error{Kind: Invalid, Message: fmt.Sprintf("GitHub found an issue without a number or a repository: %q", cmp.Or(one.GetHTMLURL(), one.GetURL()))}
	}
	issue := Issue{
		Repo: repo, Number: one.GetNumber(), Title: one.GetTitle(), Body: one.GetBody(), URL: one.GetHTMLURL(), Author: one.GetUser().GetLogin(),
	}
	for _, label := range one.Labels {
		issue.Labels = append(issue.Labels, label.GetName())
	}
	return issue, nil
}
