package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/penstock-run/penstock/worker/internal/keyring"
	"github.com/penstock-run/penstock/worker/internal/modelapi"
	"github.com/penstock-run/penstock/worker/pricing"
)

// A Config says where the model API is, and how to authenticate there.
type Config struct {
	API      string // "anthropic", the default, "openai" or "google"
	Upstream string // base URL; empty is the provider's own
	Key      Key    // the only key, unless there are Keys
	// Keys are those with names. Several need Govern, which chooses one for each call. Without
	// any, the gate serves no queue until it gets some.
	Keys []Credential
	// Bearer sends the key as "Authorization: Bearer", not in the provider's own
	// header.
	Bearer bool
	Proxy  string      // an HTTP proxy on the way to the upstream; empty is none
	TLS    *tls.Config // nil is the system's

	// Answer bounds how long the provider may take to begin its answer, and
	// Silence how long it may pause within one. Defaults: 10 and 5 minutes.
	Answer, Silence time.Duration
	// Parallel bounds the calls of one session that are under way; further
	// ones wait. Default: 16.
	Parallel int
	// Govern keeps the calls of all sessions together within what the provider allows:
	// they wait for it, and refusals do not reach the agents. False passes them on.
	Govern bool
	// PassRefused passes on that the provider refuses the key; else a Govern gate holds
	// all sessions then.
	PassRefused bool
	// Patience is how long a call may wait for the provider's limits. Default: 4 minutes, less than
	// agents wait for an answer.
	Patience time.Duration
	// Prices are those of models. The zero value is the built-in list.
	Prices pricing.Of
	Hooks  Hooks
}

// Hooks let a program observe the gate. Every field may be nil. Hooks run on the
// goroutine of a call and must not block.
type Hooks struct {
	Called func(session string, c Call)
	Spent  func(session string)
}

// A Gate forwards the calls of many sessions to one provider.
type Gate struct {
	cfg     Config
	api     modelapi.API
	maxBody int64 // of a request; the constant, except in tests
	ring    *keyring.Ring
}

// New returns a gate. It does not connect yet.
func New(cfg Config) (*Gate, error) {
	api, ok := modelapi.All[orDefault(cfg.API, "anthropic")]
	if !ok {
		return nil, fmt.Errorf("gate: model API %q is not known; known are anthropic, openai and google", cfg.API)
	}
	cfg.Answer = orDefault(cfg.Answer, 10*time.Minute)
	cfg.Silence = orDefault(cfg.Silence, 5*time.Minute)
	cfg.Parallel = orDefault(cfg.Parallel, 16)
	cfg.Patience = orDefault(cfg.Patience, 4*time.Minute)
	if u, err := url.Parse(cfg.Proxy); cfg.Proxy != "" && (err != nil || u.Host == "") {
		return nil, errors.New("gate: the proxy is not a URL; write http://host:port")
	}
	g := &Gate{cfg: cfg, api: api, maxBody: maxBody}
	g.ring = keyring.New(keyring.Config{API: api.Name, Endpoint: g.endpoint, Transport: cfg.transport, TLS: cfg.TLS, Govern: cfg.Govern})
	keys := cfg.Keys
	if len(keys) == 0 && cfg.Key != "" {
		keys = []Credential{{Key: cfg.Key}}
	}
	use, err := g.Prepare(keys)
	if err != nil {
		return nil, err
	}
	use()
	return g, nil
}

// transport makes connections for a key.
func (cfg Config) transport(secure *tls.Config) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: 15 * time.Second,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 64,
		// Answers are counted while they pass, so they must not be compressed.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
		ResponseHeaderTimeout:  cfg.Answer,
	}
	if proxy, err := url.Parse(cfg.Proxy); cfg.Proxy != "" && err == nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// Close closes idle connections to the provider.
func (g *Gate) Close() error {
	g.ring.Close()
	return nil
}

// A quota bounds what one session costs the worker itself.
type quota struct {
	session *Session
	slots   chan struct{}   // holds a value for each call under way
	over    <-chan struct{} // closed when no call begins any more
	// room bounds the bodies that are in memory. The worker is outside of the
	// jail, so the jail's limit does not hold for what it keeps for an agent.
	room      *semaphore.Weighted
	inspector sync.Mutex // one body at a time: no agent gets more than one CPU of the worker
}

// Serve answers requests on l with the token of one session, until ctx ends or l is
// closed. Then it cuts the calls that are under way, and returns when none is left. It
// closes l.
func (g *Gate) Serve(ctx context.Context, s *Session, l net.Listener) error {
	q := &quota{session: s, slots: make(chan struct{}, g.cfg.Parallel), over: ctx.Done(), room: semaphore.NewWeighted(2 * g.maxBody)}
	server := Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.handle(w, r, q) }),
		Auth:        func(r *http.Request) bool { return s.opens(g.api.Credentials(r)) },
		Deny:        func(w http.ResponseWriter, r *http.Request) { g.stranger(w, s) },
		Connections: 4 * g.cfg.Parallel,
	}
	if err := server.Serve(ctx, l); err != nil {
		return fmt.Errorf("gate: serve session %s: %w", s.id, err)
	}
	return nil
}

func orDefault[T comparable](v, value T) T {
	var zero T
	if v == zero {
		return value
	}
	return v
}
