package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-github/v92/github"
)

// gitHub opens pull requests on GitHub, by its own library.
type gitHub struct {
	place
	token secret // nil: it is an App
	app   *app

	mu      sync.Mutex
	clients map[string]*github.Client // by the repository: an App has a token for each
}

// newGitHub returns nil where the settings name neither a credential nor an address.
func newGitHub(s GitHubSettings) (*gitHub, error) {
	token, isApp := secretOf(s.Token, s.TokenFile), s.AppID != 0 || s.AppKeyFile != ""
	switch {
	case token == nil && !isApp && s.URL == "":
		return nil, nil
	case token == nil && !isApp:
		return nil, errors.New("token_file: is needed beside the url, or app_id and app_key_file")
	case token != nil && isApp:
		return nil, errors.New("token_file: has no meaning beside app_id and app_key_file")
	case isApp && (s.AppID <= 0 || s.AppKeyFile == ""):
		return nil, errors.New("app_id: is needed with app_key_file, and the other way round")
	}
	at, err := s.place()
	if err != nil {
		return nil, err
	}
	g := &gitHub{place: at, token: token, clients: map[string]*github.Client{}}
	if isApp {
		g.app = newApp(g.place, s.AppID, secretOf("", s.AppKeyFile))
	}
	return g, nil
}

// place is where GitHub is.
func (s GitHubSettings) place() (place, error) {
	u, err := apiURL(cmp.Or(s.URL, "https://api.github.com"))
	if err != nil {
		return place{}, fmt.Errorf("url: %w", err)
	}
	host := strings.TrimPrefix(u.Host, "api.")
	return place{api: u, hosts: []string{host, "ssh." + host}, depth: 1}, nil
}

// Name is that of [Forge].
func (g *gitHub) Name() string { return "GitHub" }

// A use is what the token of an App is asked for.
type use struct {
	name string // empty: pull requests
	may  github.InstallationPermissions
}

// forPulls is what an App's token for pull requests may do.
var forPulls = use{"", github.InstallationPermissions{PullRequests: new("write"), Contents: new("read")}}

// client returns the client for pull requests of a repository, and the two parts of its name.
func (g *gitHub) client(repo string) (c *github.Client, owner, name string, err error) {
	return g.clientFor(repo, forPulls)
}

func (g *gitHub) clientFor(repo string, what use) (c *github.Client, owner, name string, err error) {
	owner, name, _ = strings.Cut(repo, "/")
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.clients[repo+what.name]; c != nil {
		return c, owner, name, nil
	}
	c, err = g.open(g.doer(func(ctx context.Context, h http.Header) error {
		token, err := g.credential(ctx, repo, what)
		h.Set("Authorization", "Bearer "+token)
		return err
	}))
	if err != nil {
		return nil, "", "", err
	}
	g.clients[repo+what.name] = c
	return c, owner, name, nil
}

// open returns a client of the library, which knows no limits of its own: whoever asks
// is told of those of the forge, and waits.
func (p place) open(by *http.Client) (*github.Client, error) {
	base := p.api.String() + "/"
	return github.NewClient(github.WithHTTPClient(by), github.WithURLs(&base, &base), github.WithUserAgent("penstock"), github.WithDisableRateLimitCheck())
}

func (g *gitHub) credential(ctx context.Context, repo string, what use) (string, error) {
	if g.token != nil {
		return g.token()
	}
	return g.app.tokenFor(ctx, repo, what)
}

// failed turns an error of the library into ours. A token that is not valid any more is
// forgotten.
func (g *gitHub) failed(repo string, err error) error {
	err = libraryError(err)
	if known, ok := errors.AsType[*Error](err); ok && known.Kind == Denied && g.app != nil {
		g.app.forget(repo)
	}
	return err
}

// libraryError turns an error of GitHub's library into ours.
func libraryError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		return refusal(e.Response, e.Message, true)
	}
	if e, ok := errors.AsType[*github.RateLimitError](err); ok {
		return refusal(e.Response, e.Message, true)
	}
	e, ok := errors.AsType[*github.ErrorResponse](err)
	if !ok || e.Response == nil {
		return lost(err)
	}
	text := e.Message
	for _, more := range e.Errors {
		text += "; " + cmp.Or(more.Message, strings.TrimSpace(more.Field+" "+more.Code))
	}
	return refusal(e.Response, text, false)
}

// Find is that of [Forge].
func (g *gitHub) Find(ctx context.Context, repo, head string) (*Pull, error) {
	c, owner, name, err := g.client(repo)
	if err != nil {
		return nil, err
	}
	list, _, err := c.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{State: "open", Head: owner + ":" + head})
	if err != nil {
		return nil, g.failed(repo, err)
	}
	for _, pr := range list {
		if pr.GetHead().GetRef() == head {
			found := gitHubPull(pr)
			return &found, nil
		}
	}
	return nil, nil
}

func gitHubPull(pr *github.PullRequest) Pull {
	return Pull{Number: pr.GetNumber(), URL: pr.GetHTMLURL(), Body: pr.GetBody()}
}

// Create is that of [Forge].
func (g *gitHub) Create(ctx context.Context, c Change) (Pull, error) {
	by, owner, name, err := g.client(c.Repo)
	if err != nil {
		return Pull{}, err
	}
	if c.Base == "" {
		repo, _, err := by.Repositories.Get(ctx, owner, name)
		if err != nil {
			return Pull{}, g.failed(c.Repo, err)
		}
		c.Base = repo.GetDefaultBranch()
	}
	pr, _, err := by.PullRequests.Create(ctx, owner, name, github.CreatePullRequest{
		Title: &c.Title, Head: c.Head, Base: c.Base, Body: &c.Body, Draft: new(true), MaintainerCanModify: new(true),
	})
	if err != nil {
		return Pull{}, g.failed(c.Repo, err)
	}
	return gitHubPull(pr), nil
}

// Update is that of [Forge].
func (g *gitHub) Update(ctx context.Context, repo string, number int, body string) error {
	c, owner, name, err := g.client(repo)
	if err != nil {
		return err
	}
	_, _, err = c.PullRequests.Edit(ctx, owner, name, number, &github.PullRequest{Body: &body})
	return g.failed(repo, err)
}

// Decorate is that of [Forge].
func (g *gitHub) Decorate(ctx context.Context, repo string, number int, labels, reviewers []string) error {
	c, owner, name, err := g.client(repo)
	if err != nil {
		return err
	}
	if len(labels) > 0 {
		if _, _, err := c.Issues.AddLabelsToIssue(ctx, owner, name, number, labels); err != nil {
			return g.failed(repo, err)
		}
	}
	if len(reviewers) == 0 {
		return nil
	}
	var who github.ReviewersRequest
	for _, r := range reviewers {
		if _, team, ok := strings.Cut(r, "/"); ok {
			who.TeamReviewers = append(who.TeamReviewers, team)
		} else {
			who.Reviewers = append(who.Reviewers, r)
		}
	}
	_, _, err = c.PullRequests.RequestReviewers(ctx, owner, name, number, who)
	return g.failed(repo, err)
}
