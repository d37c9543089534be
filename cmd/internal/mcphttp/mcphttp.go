// Package mcphttp serves models over HTTP, by the Model Context Protocol with streamable
// HTTP as its transport.
//
//	model ─▶ MCP client ══HTTP══▶ httpapi: admission ─▶ Handler ─▶ server of the identity ─▶ tools
//
// Each identity has a server of its own, with the tools that its role may use. So a session
// is known only to the identity that has opened it, and what is submitted is counted for
// each identity, over all of its sessions, until the program ends. Sessions are bounded in
// number, and end when they are idle.
package mcphttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/cmd/internal/mcpstdio"
	"github.com/penstock-run/penstock/cmd/internal/mcptools"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
)

// Limits that Config does not set.
const (
	// mostTools is how many tools of one identity run at once. More wait.
	mostTools = 64
	// Sessions is how many an identity may have open.
	Sessions = 32
	// Idle is how long a session may be without a request.
	Idle = 30 * time.Minute
)

// Config is what a handler works with.
type Config struct {
	Client *client.Client // with the role operator
	// Allow names the changes that models may make, as far as the role of an identity
	// goes; see [mcptools.Allowances].
	Allow    []string
	Bounds   mcptools.Bounds // of each identity
	Release  string          // of the program
	Sessions int             // of an identity; 0: [Sessions]
	Idle     time.Duration   // 0: [Idle]
}

// A Handler answers requests of models. Make one with New.
type Handler struct {
	cfg Config
	// ended is closed when no tool is to run any more.
	ended chan struct{}

	mu      sync.Mutex                   // guards what follows
	servers map[httpapi.Identity]*server // of every identity that has asked; their number is that of tokens
}

// A server is that of an identity.
type server struct {
	*mcp.Server
	http    http.Handler
	opening int // sessions that are being opened
}

// New returns a handler. It does no I/O.
func New(cfg Config) *Handler {
	if cfg.Sessions == 0 {
		cfg.Sessions = Sessions
	}
	if cfg.Idle == 0 {
		cfg.Idle = Idle
	}
	return &Handler{cfg: cfg, ended: make(chan struct{}), servers: map[httpapi.Identity]*server{}}
}

// Run waits until ctx ends, and then ends all tools and sessions.
func (h *Handler) Run(ctx context.Context) error {
	<-ctx.Done()
	close(h.ended)
	for _, session := range h.sessions() {
		_ = session.Close() // its client may have gone
	}
	return nil
}

func (h *Handler) sessions() []*mcp.ServerSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*mcp.ServerSession
	for _, s := range h.servers {
		for session := range s.Sessions() {
			all = append(all, session)
		}
	}
	return all
}

// Serve answers a request, whose body has been read. An error says that nothing was
// answered.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, who httpapi.Identity, body []byte) error {
	s := h.serverOf(who)
	if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
		if !h.enter(s) {
			return &jobs.CodedError{Code: jobs.CodeBusy, Message: fmt.Sprintf("%s has %d sessions open, as many as it may: close one, or wait until one is idle for %v", who.Name, h.cfg.Sessions, h.cfg.Idle)}
		}
		opening := &opening{ResponseWriter: w, leave: sync.OnceFunc(func() { h.leave(s) })}
		defer opening.leave()
		w = opening
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.http.ServeHTTP(w, r)
	return nil
}

// serverOf is the server of an identity.
func (h *Handler) serverOf(who httpapi.Identity) *server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.servers[who]; s != nil {
		return s
	}
	s := &server{Server: mcptools.New(mcptools.Config{
		Client: h.cfg.Client.As("mcp").OnBehalf(who.Name, who.Role, "mcp"), Allow: h.cfg.Allow, Bounds: h.cfg.Bounds, Release: h.cfg.Release,
	})}
	s.AddReceivingMiddleware(mcpstdio.LimitTools(h.ended, mostTools))
	s.http = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.Server }, &mcp.StreamableHTTPOptions{
		SessionTimeout: h.cfg.Idle,
		// The names of this server are checked by then, also those that a proxy passes on.
		DisableLocalhostProtection: true,
	})
	h.servers[who] = s
	return s
}

// enter takes a place for a session that is being opened, if one is left.
func (h *Handler) enter(s *server) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := s.opening
	for range s.Sessions() {
		open++
	}
	if open >= h.cfg.Sessions {
		return false
	}
	s.opening++
	return true
}

// An opening is the answer to a request that opens a session. Once it begins, the session
// is there and counts for itself.
type opening struct {
	http.ResponseWriter
	leave func()
}

func (o *opening) WriteHeader(status int) {
	o.leave()
	o.ResponseWriter.WriteHeader(status)
}

func (o *opening) Write(p []byte) (int, error) {
	o.leave()
	return o.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (o *opening) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (h *Handler) leave(s *server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.opening--
}
