package forge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Settings say on which forges a pool opens pull requests, and with which credentials.
type Settings struct {
	PublicURL string         `yaml:"public_url" env:"PUBLIC_URL" doc:"address of the dashboard for those who read pull requests; empty: they have no link to it"`
	GitHub    GitHubSettings `yaml:"github" envPrefix:"GITHUB_"`
	GitLab    TokenSettings  `yaml:"gitlab" envPrefix:"GITLAB_"`
	Gitea     TokenSettings  `yaml:"gitea" envPrefix:"GITEA_"`
}

// GitHubSettings are those of GitHub: with a token, or as an App.
type GitHubSettings struct {
	URL        string `yaml:"url" env:"URL" doc:"address of GitHub's API; empty is https://api.github.com, and of an own server it ends with /api/v3"`
	TokenFile  string `yaml:"token_file" env:"TOKEN_FILE" doc:"file with a fine-grained token that may write pull requests"`
	AppID      int64  `yaml:"app_id" env:"APP_ID" doc:"number of the GitHub App that opens pull requests, instead of a token"`
	AppKeyFile string `yaml:"app_key_file" env:"APP_KEY_FILE" doc:"its private key, a PEM file"`
	// Token has been removed from the environment before it is read.
	Token string `yaml:"-" env:"TOKEN" doc:"the token itself, if token_file names none; it stays in serve"`
}

// TokenSettings are those of a forge with tokens.
type TokenSettings struct {
	URL       string `yaml:"url" env:"URL" doc:"address of the server, such as https://gitlab.com or https://codeberg.org; empty: there is none"`
	TokenFile string `yaml:"token_file" env:"TOKEN_FILE" doc:"file with a token that may open merge requests or pull requests there"`
	// Token has been removed from the environment before it is read.
	Token string `yaml:"-" env:"TOKEN" doc:"the token itself, if token_file names none; it stays in serve"`
}

// A Forge opens pull requests. Its methods may be called from any goroutine; each makes
// its requests once, and returns an [*Error] where they fail.
type Forge interface {
	// Name is the forge's, for people.
	Name() string
	// Repository returns the name of the repository with an address, if it is there.
	Repository(address string) (name string, ok bool)
	// Find returns the open pull request of a branch of a repository; nil: there is none.
	Find(ctx context.Context, repo, head string) (*Pull, error)
	// Create opens one as a draft.
	Create(ctx context.Context, c Change) (Pull, error)
	// Update replaces the text of one.
	Update(ctx context.Context, repo string, number int, body string) error
	// Decorate adds labels, and asks for reviews.
	Decorate(ctx context.Context, repo string, number int, labels, reviewers []string) error
	// Check shows beside a commit what the pool's checks have found. It may be called again.
	Check(ctx context.Context, c Check) error
	Issues
}

// Issues are the issues of a forge's repositories.
type Issues interface {
	// Issue returns the repository and the number of the issue with an address, if it is there.
	Issue(address string) (repo string, number int, ok bool)
	// Comment writes a comment to an issue, unless it is there.
	Comment(ctx context.Context, c Comment) error
}

// Forges are those of the settings. It reads no file.
func (s Settings) Forges() ([]Forge, error) {
	var all []Forge
	var errs []error
	add := func(name string, make func() (Forge, error)) {
		f, err := make()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			return
		}
		if f != nil {
			all = append(all, f)
		}
	}
	add("github", func() (Forge, error) {
		g, err := newGitHub(s.GitHub)
		if g == nil {
			return nil, err // and not an interface that holds nil
		}
		return g, nil
	})
	add("gitlab", func() (Forge, error) { return newGitLab(s.GitLab) })
	add("gitea", func() (Forge, error) { return newGitea(s.Gitea) })
	if _, err := apiURL(cmp.Or(s.PublicURL, "https://localhost")); err != nil {
		errs = append(errs, fmt.Errorf("public_url: %w", err))
	}
	return all, errors.Join(errs...)
}

// apiURL is an address without a slash at its end. A credential is sent without TLS only
// within this host.
func apiURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a server, such as https://gitlab.com", text)
	}
	switch host := u.Hostname(); {
	case u.Scheme == "https":
	case u.Scheme == "http" && (host == "127.0.0.1" || host == "::1" || host == "localhost"):
	default:
		return nil, fmt.Errorf("%q does not begin with https://", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// tokenPlace is where a forge with tokens is, and its token; the place is empty where the
// settings name none.
func (s TokenSettings) tokenPlace(api string, depth int) (place, secret, error) {
	if s.URL == "" {
		if s.TokenFile != "" || s.Token != "" {
			return place{}, nil, errors.New("url: is needed beside the token")
		}
		return place{}, nil, nil
	}
	u, err := apiURL(s.URL)
	if err != nil {
		return place{}, nil, fmt.Errorf("url: %w", err)
	}
	token := secretOf(s.Token, s.TokenFile)
	if token == nil {
		return place{}, nil, errors.New("token_file: is needed beside the url")
	}
	return place{api: u.JoinPath(api), hosts: []string{u.Host}, path: u.Path, depth: depth}, token, nil
}
