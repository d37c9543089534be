package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v92/github"
)

// A Comment is one that the pool writes to an issue.
type Comment struct {
	Repo   string
	Number int // of the issue
	// Mark is a part of Body that no other comment has: where there is one with it, since a
	// time, no other is written.
	Mark  string
	Since time.Time
	Body  string
}

// How many comments are looked through for one.
const (
	commentsAPage = 100
	commentPages  = 10
)

// issuePage is what follows the address of a repository in that of an issue; GitLab has /-/
// before it.
var issuePage = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.+?)(?:/-)?/issues/([1-9][0-9]{0,8})$`) })

// Issue returns the repository of an issue with an address, and its number, if it is on this
// forge.
func (p place) Issue(address string) (repo string, number int, ok bool) {
	found := issuePage().FindStringSubmatch(address)
	if found == nil || !strings.HasPrefix(address, "http") || strings.ContainsAny(address, "?#@%|\"'`()<>[]\\ \t\r\n") {
		return "", 0, false
	}
	if repo, ok = p.Repository(found[1]); !ok {
		return "", 0, false
	}
	number, err := strconv.Atoi(found[2])
	return repo, number, err == nil
}

// forComments is what an App's token for comments may do.
var forComments = use{" comments", github.InstallationPermissions{Issues: new("write")}}

// Comment is that of [Forge].
func (g *gitHub) Comment(ctx context.Context, c Comment) error {
	by, owner, name, err := g.clientFor(c.Repo, forComments)
	if err != nil {
		return err
	}
	opts := &github.IssueListCommentsOptions{Since: &c.Since, ListOptions: github.ListOptions{PerPage: commentsAPage}}
	for range commentPages {
		list, answer, err := by.Issues.ListComments(ctx, owner, name, c.Number, opts)
		if err != nil {
			return g.failed(c.Repo, err)
		}
		for _, one := range list {
			if strings.Contains(one.GetBody(), c.Mark) {
				return nil
			}
		}
		if opts.Page = answer.NextPage; opts.Page == 0 {
			break
		}
	}
	_, _, err = by.Issues.CreateComment(ctx, owner, name, c.Number, github.IssueCommentRequest{Body: c.Body})
	return g.failed(c.Repo, err)
}

// comment looks for a comment, page by page where the query says how long a page is, and writes
// it if it is not there.
func (r rest) comment(ctx context.Context, path string, query url.Values, c Comment) error {
	paged := query.Has("per_page")
	for page := range commentPages {
		var list []struct {
			Body string `json:"body"`
		}
		if paged {
			query.Set("page", strconv.Itoa(page+1))
		}
		if err := r.call(ctx, ask{method: http.MethodGet, path: path, query: query}, &list); err != nil {
			return err
		}
		for _, one := range list {
			if strings.Contains(one.Body, c.Mark) {
				return nil
			}
		}
		if !paged || len(list) < commentsAPage {
			break
		}
	}
	return r.call(ctx, ask{method: http.MethodPost, path: path, body: map[string]any{"body": c.Body}}, nil)
}

// Comment is that of [Forge].
func (g *gitLab) Comment(ctx context.Context, c Comment) error {
	// The newest first, for they have no filter by time.
	query := url.Values{"order_by": {"created_at"}, "sort": {"desc"}, "per_page": {strconv.Itoa(commentsAPage)}}
	return g.comment(ctx, g.project(c.Repo, fmt.Sprintf("/issues/%d/notes", c.Number)), query, c)
}

// Comment is that of [Forge].
func (g *gitea) Comment(ctx context.Context, c Comment) error {
	// All of them come at once: they have no pages.
	query := url.Values{"since": {c.Since.UTC().Format(time.RFC3339)}}
	return g.comment(ctx, fmt.Sprintf("/repos/%s/issues/%d/comments", c.Repo, c.Number), query, c)
}
