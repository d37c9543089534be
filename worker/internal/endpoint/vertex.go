package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
)

// vertex is Google's Vertex AI, with the models of Google and of Anthropic.
type vertex struct {
	Config
	tokens oauth2.TokenSource // one until it expires; one request for all that wait

	mu    sync.Mutex
	token string // the last one; guarded by mu
}

const scope = "https://www.googleapis.com/auth/cloud-platform"

// newVertex reads the secret, the file of a service account.
func newVertex(cfg Config) (*vertex, error) {
	var account struct {
		Type  string `json:"type"`
		Email string `json:"client_email"`
		Key   string `json:"private_key"`
		ID    string `json:"private_key_id"`
		URL   string `json:"token_uri"`
	}
	if err := json.Unmarshal([]byte(cfg.Secret), &account); err != nil || account.Type != "service_account" || account.Email == "" || account.Key == "" {
		return nil, errors.New("is not the file of a service account, which is JSON with type, client_email and private_key")
	}
	if account.URL == "" {
		account.URL = "https://oauth2.googleapis.com/token"
	}
	if _, err := Base(account.URL); err != nil {
		return nil, fmt.Errorf("token_uri: %w", err)
	}
	c := jwt.Config{Email: account.Email, PrivateKey: []byte(account.Key), PrivateKeyID: account.ID, Scopes: []string{scope}, TokenURL: account.URL}
	ctx := context.Background() // of requests for tokens, which belong to no single call
	if cfg.Client != nil {
		ctx = context.WithValue(ctx, oauth2.HTTPClient, cfg.Client)
	}
	return &vertex{Config: cfg, tokens: c.TokenSource(ctx)}, nil
}

func (v *vertex) target(t *target) error {
	place := "/v1/projects/" + escape(v.Project) + "/locations/" + escape(v.Region) + "/publishers/"
	if v.API == "google" {
		_, call, ok := strings.Cut(t.path, ":")
		if !ok {
			return ErrUnknown
		}
		t.path = place + "google/models/" + escape(t.model) + ":" + call
		return nil
	}
	var path string
	err := t.anthropic(&path)
	t.path, t.Query = place+"anthropic/models/"+path, ""
	t.Header.Del("Anthropic-Version") // it is in the body
	return err
}

// anthropic makes the body of a call of Anthropic's, and names the model and the method.
func (t *target) anthropic(path *string) error {
	switch t.Path {
	case "/v1/messages/count_tokens":
		*path = "count-tokens:rawPredict"
		return t.change(func(body map[string]json.RawMessage) {
			body["model"], body["anthropic_version"] = encoded(t.model), encoded("vertex-2023-10-16")
		})
	case "/v1/messages":
		err := t.change(func(body map[string]json.RawMessage) {
			t.streamed = string(body["stream"]) == "true"
			delete(body, "model")
			delete(body, "anthropic_beta") // it is in the header
			body["anthropic_version"] = encoded("vertex-2023-10-16")
		})
		*path = escape(t.model) + ":rawPredict"
		if t.streamed {
			*path = escape(t.model) + ":streamRawPredict"
		}
		return err
	}
	return ErrUnknown
}

func (v *vertex) authorize(r *http.Request, _ []byte) error {
	token, err := v.tokens.Token()
	if err != nil {
		refused, ok := errors.AsType[*oauth2.RetrieveError](err)
		switch {
		case ok && refused.Response != nil && refused.Response.StatusCode < 500 && refused.Response.StatusCode != http.StatusTooManyRequests:
			var said struct {
				Error string `json:"error"`
			}
			_ = json.Unmarshal(refused.Body, &said) // then it has no word for it
			return fmt.Errorf("%w: get a token: status %d, %.60q", ErrRefused, refused.Response.StatusCode, said.Error)
		case ok:
			return errors.New("get a token: the server of tokens fails")
		}
		return fmt.Errorf("get a token: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token = token.AccessToken
	r.Header.Set("Authorization", "Bearer "+token.AccessToken)
	return nil
}

func (v *vertex) answer(*http.Response) {}

func (v *vertex) secrets() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return []string{v.token}
}
