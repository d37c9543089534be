package forge

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v92/github"
)

// What a token of an App is asked for, and how long before its end another one is.
const (
	proofFor    = 9 * time.Minute // GitHub takes 10 at most
	proofBehind = time.Minute     // for a clock that is ahead of GitHub's
	tokenBefore = 5 * time.Minute
)

// An app is a GitHub App: it proves who it is with its key, and gets tokens that are for
// one repository and one hour.
type app struct {
	place
	id  int64
	key secret

	mu     sync.Mutex
	tokens map[string]appToken
}

type appToken struct {
	value string
	until time.Time
}

func newApp(at place, id int64, key secret) *app {
	return &app{place: at, id: id, key: key, tokens: map[string]appToken{}}
}

// tokenFor returns one with permissions in a repository, which is kept until shortly before
// its end.
func (a *app) tokenFor(ctx context.Context, repo string, what use) (string, error) {
	if t, ok := a.kept(repo + what.name); ok {
		return t, nil
	}
	c, at, err := a.installation(ctx, repo)
	if err != nil {
		return "", err
	}
	_, name, _ := strings.Cut(repo, "/")
	t, _, err := c.Apps.CreateInstallationToken(ctx, at.GetID(), &github.InstallationTokenOptions{
		Repositories: []string{name}, Permissions: &what.may,
	})
	if err != nil {
		return "", libraryError(err)
	}
	a.keep(repo+what.name, appToken{t.GetToken(), t.GetExpiresAt().Add(-tokenBefore)})
	return t.GetToken(), nil
}

// client makes requests as the App itself.
func (a *app) client() (*github.Client, error) {
	return a.open(a.doer(func(_ context.Context, h http.Header) error {
		proof, err := a.proof(time.Now())
		h.Set("Authorization", "Bearer "+proof)
		return err
	}))
}

// installation returns that of the App in a repository, and a client that asks as the App.
func (a *app) installation(ctx context.Context, repo string) (*github.Client, *github.Installation, error) {
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	owner, name, _ := strings.Cut(repo, "/")
	at, _, err := c.Apps.GetRepositoryInstallation(ctx, owner, name)
	return c, at, libraryError(err)
}

func (a *app) kept(repo string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tokens[repo]
	return t.value, time.Now().Before(t.until)
}

func (a *app) keep(repo string, t appToken) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[repo] = t
}

func (a *app) forget(repo string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.tokens, func(of string, _ appToken) bool {
		of, _, _ = strings.Cut(of, " ")
		return of == repo
	})
}

// proof is a JSON Web Token (RFC 7519) with which the App proves who it is: RS256, the one
// kind that GitHub takes.
func (a *app) proof(now time.Time) (string, error) {
	text, err := a.key()
	if err != nil {
		return "", err
	}
	key, err := parseKey([]byte(text))
	if err != nil {
		return "", &Error{Kind: Denied, Message: fmt.Sprintf("key of the GitHub App: %v", err)}
	}
	claims, err := json.Marshal(struct {
		Issued  int64  `json:"iat"`
		Expires int64  `json:"exp"`
		Issuer  string `json:"iss"`
	}{now.Add(-proofBehind).Unix(), now.Add(proofFor).Unix(), strconv.FormatInt(a.id, 10)})
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign as the GitHub App: %w", err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// parseKey reads an RSA key in either form of PEM.
func parseKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("it is no PEM file")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is no private key")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is no RSA key")
	}
	return key, nil
}
