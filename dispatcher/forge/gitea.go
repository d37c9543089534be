package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// How many open pull requests are looked through for one: the API has no filter for it.
const (
	giteaPage  = 50
	giteaPages = 40
)

// gitea opens pull requests on Gitea and on Forgejo, whose APIs are the same here.
type gitea struct{ rest }

func newGitea(s TokenSettings) (Forge, error) {
	at, token, err := s.tokenPlace("/api/v1", 1)
	if err != nil || token == nil {
		return nil, err
	}
	return &gitea{rest{at, at.doer(func(_ context.Context, h http.Header) error {
		value, err := token()
		h.Set("Authorization", "token "+value)
		return err
	})}}, nil
}

// Name is that of [Forge].
func (g *gitea) Name() string { return "Gitea" }

// giteaPull is what Gitea says of a pull request.
type giteaPull struct {
	Number int    `json:"number"`
	URL    string `json:"html_url"`
	Body   string `json:"body"`
	Head   struct {
		Ref  string `json:"ref"`
		Repo struct {
			Name string `json:"full_name"`
		} `json:"repo"`
	} `json:"head"`
}

// Find is that of [Forge].
func (g *gitea) Find(ctx context.Context, repo, head string) (*Pull, error) {
	for page := range giteaPages {
		var list []giteaPull
		query := url.Values{"state": {"open"}, "sort": {"recentupdate"}, "limit": {strconv.Itoa(giteaPage)}, "page": {strconv.Itoa(page + 1)}}
		if err := g.call(ctx, ask{method: http.MethodGet, path: "/repos/" + repo + "/pulls", query: query}, &list); err != nil {
			return nil, err
		}
		for _, p := range list {
			if p.Head.Ref == head && strings.EqualFold(p.Head.Repo.Name, repo) { // and not of a fork
				return &Pull{p.Number, p.URL, p.Body}, nil
			}
		}
		if len(list) == 0 { // a server may send fewer than it is asked for
			break
		}
	}
	return nil, nil
}

// Create is that of [Forge].
func (g *gitea) Create(ctx context.Context, c Change) (Pull, error) {
	if c.Base == "" {
		var repo struct {
			Default string `json:"default_branch"`
		}
		if err := g.call(ctx, ask{method: http.MethodGet, path: "/repos/" + c.Repo}, &repo); err != nil {
			return Pull{}, err
		}
		c.Base = repo.Default
	}
	var made giteaPull
	err := g.call(ctx, ask{method: http.MethodPost, path: "/repos/" + c.Repo + "/pulls", body: map[string]any{
		"head": c.Head, "base": c.Base, "title": "WIP: " + c.Title, "body": c.Body,
	}}, &made)
	return Pull{made.Number, made.URL, made.Body}, err
}

// Update is that of [Forge].
func (g *gitea) Update(ctx context.Context, repo string, number int, body string) error {
	return g.call(ctx, ask{method: http.MethodPatch, path: fmt.Sprintf("/repos/%s/pulls/%d", repo, number), body: map[string]any{"body": body}}, nil)
}

// Decorate is that of [Forge].
func (g *gitea) Decorate(ctx context.Context, repo string, number int, labels, reviewers []string) error {
	if len(labels) > 0 {
		ids, err := g.labels(ctx, repo, labels)
		if err != nil {
			return err
		}
		if err := g.call(ctx, ask{method: http.MethodPost, path: fmt.Sprintf("/repos/%s/issues/%d/labels", repo, number), body: map[string]any{"labels": ids}}, nil); err != nil {
			return err
		}
	}
	if len(reviewers) == 0 {
		return nil
	}
	return g.call(ctx, ask{method: http.MethodPost, path: fmt.Sprintf("/repos/%s/pulls/%d/requested_reviewers", repo, number), body: map[string]any{"reviewers": reviewers}}, nil)
}

// labels returns the numbers of labels, by which the API takes them.
func (g *gitea) labels(ctx context.Context, repo string, names []string) (ids []int64, err error) {
	var found []string
	for page := range giteaPages {
		var list []struct {
			ID   int64  `json:"id"`
			Name string `json:"name"`
		}
		query := url.Values{"limit": {strconv.Itoa(giteaPage)}, "page": {strconv.Itoa(page + 1)}}
		if err := g.call(ctx, ask{method: http.MethodGet, path: "/repos/" + repo + "/labels", query: query}, &list); err != nil {
			return nil, err
		}
		for _, l := range list {
			if slices.Contains(names, l.Name) {
				ids, found = append(ids, l.ID), append(found, l.Name)
			}
		}
		if len(list) == 0 {
			break
		}
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			return nil, &Error{Kind: Invalid, Message: fmt.Sprintf("the repository has no label %q", name)}
		}
	}
	return ids, nil
}
