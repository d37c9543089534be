package endpoint

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/singleflight"
)

// subscription returns the kind of an API's, and where it is.
func subscription(cfg Config) (base string, k kind, err error) {
	if cfg.API == "openai" {
		k, err = newChatGPT(cfg)
		return cmp.Or(cfg.URL, "https://chatgpt.com/backend-api/codex"), k, err
	}
	k, err = newClaude(cfg)
	return cmp.Or(cfg.URL, "https://api.anthropic.com"), k, err
}

// claude is Anthropic's API with a token that "claude setup-token" makes of a subscription, as Claude Code
// 2.1.329 uses it: a bearer, and a beta that allows it.
type claude struct{ native }

const claudeBeta = "oauth-2025-04-20"

func newClaude(cfg Config) (kind, error) {
	if cfg.Secret == "" || strings.ContainsAny(cfg.Secret, " \t\r\n{") {
		return nil, errors.New("is not a token, as claude setup-token prints it")
	}
	cfg.Header = "Authorization"
	return claude{native{cfg}}, nil
}

func (c claude) authorize(r *http.Request, body []byte) error {
	betas := claudeBeta
	if asked := r.Header.Get("Anthropic-Beta"); asked != "" {
		betas = asked + "," + claudeBeta
	}
	r.Header.Set("Anthropic-Beta", betas)
	return c.native.authorize(r, body)
}

// chatGPT is the API that Codex uses with a subscription of ChatGPT: the responses of OpenAI's, at another
// host, with tokens of a login. They are renewed in the file that has them.
type chatGPT struct {
	native
	login   *login
	renewal singleflight.Group // one for all calls that need it
}

func newChatGPT(cfg Config) (kind, error) {
	l, err := readLogin(cfg.File)
	if err != nil {
		return nil, err
	}
	cfg.TokenURL = cmp.Or(cfg.TokenURL, tokensURL)
	if _, err := Base(cfg.TokenURL); err != nil {
		return nil, fmt.Errorf("token_url: %w", err)
	}
	return &chatGPT{native: native{cfg}, login: l}, nil
}

func (c *chatGPT) target(t *target) error {
	rest, ok := strings.CutPrefix(t.path, "/v1")
	if !ok || rest != "/responses" {
		return ErrUnknown
	}
	t.path = rest
	return c.native.target(t)
}

// authorize waits for tokens that are valid. A call that ends meanwhile does not end the renewal: the token
// that it is made with can be used once only.
func (c *chatGPT) authorize(r *http.Request, _ []byte) error {
	if c.login.due() {
		done := c.renewal.DoChan("", func() (any, error) { return nil, c.login.renew(c.Client, c.TokenURL) })
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case renewed := <-done:
			if renewed.Err != nil {
				return renewed.Err
			}
		}
	}
	access, account := c.login.credential()
	r.Header.Set("Authorization", "Bearer "+access)
	r.Header.Set("Chatgpt-Account-Id", account)
	return nil
}

func (c *chatGPT) secrets() []string { return c.login.secrets() }
