package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// gitLab opens merge requests on GitLab.
type gitLab struct{ rest }

func newGitLab(s TokenSettings) (Forge, error) {
	at, token, err := s.tokenPlace("/api/v4", 0)
	if err != nil || token == nil {
		return nil, err
	}
	return &gitLab{rest{at, at.doer(func(_ context.Context, h http.Header) error {
		value, err := token()
		h.Set("Private-Token", value)
		return err
	})}}, nil
}

// Name is that of [Forge].
func (g *gitLab) Name() string { return "GitLab" }

func (g *gitLab) project(repo, rest string) string { return "/projects/" + url.PathEscape(repo) + rest }

// mergeRequest is what GitLab says of one.
type mergeRequest struct {
	Number int    `json:"iid"`
	URL    string `json:"web_url"`
	Body   string `json:"description"`
	Head   string `json:"source_branch"`
	From   int64  `json:"source_project_id"`
	In     int64  `json:"target_project_id"`
}

// Find is that of [Forge].
func (g *gitLab) Find(ctx context.Context, repo, head string) (*Pull, error) {
	var list []mergeRequest
	err := g.call(ctx, ask{method: http.MethodGet, path: g.project(repo, "/merge_requests"), query: url.Values{"state": {"opened"}, "source_branch": {head}}}, &list)
	for _, m := range list {
		if m.Head == head && m.From == m.In { // and not of a fork
			return &Pull{m.Number, m.URL, m.Body}, nil
		}
	}
	return nil, err
}

// Create is that of [Forge].
func (g *gitLab) Create(ctx context.Context, c Change) (Pull, error) {
	if c.Base == "" {
		var project struct {
			Default string `json:"default_branch"`
		}
		if err := g.call(ctx, ask{method: http.MethodGet, path: g.project(c.Repo, "")}, &project); err != nil {
			return Pull{}, err
		}
		c.Base = project.Default
	}
	var made mergeRequest
	err := g.call(ctx, ask{method: http.MethodPost, path: g.project(c.Repo, "/merge_requests"), body: map[string]any{
		"source_branch": c.Head, "target_branch": c.Base, "title": "Draft: " + c.Title, "description": c.Body,
	}}, &made)
	return Pull{made.Number, made.URL, made.Body}, err
}

// Update is that of [Forge].
func (g *gitLab) Update(ctx context.Context, repo string, number int, body string) error {
	return g.call(ctx, ask{method: http.MethodPut, path: g.project(repo, "/merge_requests/"+strconv.Itoa(number)), body: map[string]any{"description": body}}, nil)
}

// Decorate is that of [Forge].
func (g *gitLab) Decorate(ctx context.Context, repo string, number int, labels, reviewers []string) error {
	with := map[string]any{}
	if len(labels) > 0 {
		with["add_labels"] = strings.Join(labels, ",")
	}
	var ids []int64
	for _, name := range reviewers {
		var users []struct {
			ID int64 `json:"id"`
		}
		if err := g.call(ctx, ask{method: http.MethodGet, path: "/users", query: url.Values{"username": {name}}}, &users); err != nil {
			return err
		}
		if len(users) == 0 {
			return &Error{Kind: Invalid, Message: fmt.Sprintf("there is no user %q", name)}
		}
		ids = append(ids, users[0].ID)
	}
	if len(ids) > 0 {
		with["reviewer_ids"] = ids
	}
	if len(with) == 0 {
		return nil
	}
	return g.call(ctx, ask{method: http.MethodPut, path: g.project(repo, "/merge_requests/"+strconv.Itoa(number)), body: with}, nil)
}
