package inside

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/gate"
)

// How fast an attempt may send requests, how many more at once, and how many
// connections it may hold.
const (
	perSecond   = 20
	burst       = 100
	patience    = 1000 // refusals
	connections = 80   // 64 of them for MCP servers, whose streams stay open
)

// shortLimit is the size of a request with a text.
const shortLimit = 32 << 10

// How long the bytes of a request may take.
const (
	shortBody = 10 * time.Second
	longBody  = 10 * time.Minute
)

// Handlers carry out requests. Several of them run at once, except for Result, and for
// Artifact. The agent receives what they return, and a [*RefusedError] as it is.
type Handlers struct {
	Milestone func(ctx context.Context, text string) error
	Artifact  func(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error)
	Result    func(ctx context.Context, value json.RawMessage) error
	Ask       func(ctx context.Context, ask Ask) (Answer, error)
	// Terminal handles requests about the terminals of the jail.
	Terminal func(ctx context.Context, r terminal.Request) (terminal.Answer, error)
	// MCP passes messages to the job's MCP servers that have a URL, by the path value "name". Nil:
	// the job has none. It bounds its requests itself.
	MCP http.Handler
	// Shut is called once when the server shuts, with the reason.
	Shut func(why string)
}

// A Server serves one attempt. It counts over all runs of the attempt's agent.
type Server struct {
	token    string
	shut     chan struct{} // closed when the server shuts
	writing  chan struct{} // held while an artifact is stored
	deciding chan struct{} // held while a result is set

	mu      sync.Mutex
	tokens  float64 // how many requests may come at once
	filled  time.Time
	refused int
	used    map[string]int // by the name of a bound
	bytes   int64          // of artifacts
	names   map[string]bool
}

// NewServer returns a server with a token of its own.
func NewServer() *Server {
	return &Server{
		token: strings.ToLower(rand.Text()), shut: make(chan struct{}), writing: make(chan struct{}, 1), deciding: make(chan struct{}, 1),
		tokens: burst, filled: time.Now(), used: map[string]int{}, names: map[string]bool{},
	}
}

// Token is the credential for the server.
func (d *Server) Token() string { return d.token }

// URL is the server's URL in the environment of the jail's programs.
func (d *Server) URL(address string) string {
	return (&url.URL{Scheme: "http", User: url.User(d.token), Host: address}).String()
}

// Serve answers requests on l until ctx ends, l is closed, or the server shuts. Then it
// cuts the requests under way. It closes l.
func (d *Server) Serve(ctx context.Context, l net.Listener, handlers Handlers) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var closer sync.WaitGroup
	closer.Go(func() {
		select {
		case <-d.shut:
			cancel()
		case <-ctx.Done():
		}
	})
	err := gate.Server{Handler: d.handler(handlers), Auth: d.opens, Deny: deny, Connections: connections}.Serve(ctx, l)
	cancel()
	closer.Wait()
	return err
}

func (d *Server) handler(handlers Handlers) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, Handlers) (any, error){
		"POST /v1/milestones":      d.milestone,
		"PUT /v1/artifacts/{name}": d.artifact,
		"PUT /v1/result":           d.result,
		"POST /v1/asks":            d.ask,
		"POST /v1/terminals":       d.terminal,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := h(w, r, handlers)
			reply(w, answer, err)
		})
	}
	bounded := http.NewServeMux()
	bounded.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := d.admit(handlers); err != nil {
			reply(w, nil, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
	if handlers.MCP != nil {
		bounded.Handle("/"+mcpPath+"{name}", handlers.MCP)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that sends a byte now and then could hold a connection for ever.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(shortBody)) // every connection of ours has one
		bounded.ServeHTTP(w, r)
	})
}

func reply(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		refused, ok := errors.AsType[*RefusedError](err)
		if large, is := errors.AsType[*http.MaxBytesError](err); is {
			refused, ok = Refuse("too_large", "it is longer than the %d bytes that are left", large.Limit), true
		}
		if !ok {
			refused = Refuse("lost", "%v", err)
		}
		answer, status = refusal{refused}, refused.status()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(answer)) // the client may have gone
}

// opens reports whether a request has the token. A request without it does not count:
// if a jail shares the host's network any program may send it, and must not shut the
// server for the agent.
func (d *Server) opens(r *http.Request) bool {
	name, _, _ := r.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(name), []byte(d.token)) == 1
}

func deny(w http.ResponseWriter, _ *http.Request) {
	reply(w, nil, Refuse("forbidden", "the token is wrong: take the whole URL of the environment"))
}

// admit counts a request, and refuses one that exceeds the rate.
func (d *Server) admit(handlers Handlers) error {
	d.mu.Lock()
	now := time.Now()
	d.tokens = min(burst, d.tokens+perSecond*now.Sub(d.filled).Seconds())
	d.filled = now
	if d.tokens >= 1 {
		d.tokens--
		d.mu.Unlock()
		return nil
	}
	if d.refused >= patience {
		d.mu.Unlock()
		panic(http.ErrAbortHandler) // the server has shut, and is about to be closed
	}
	d.refused++
	shut := d.refused == patience
	d.mu.Unlock()
	if shut {
		close(d.shut)
		if handlers.Shut != nil {
			handlers.Shut("the agent's programs sent too many requests to their worker: nothing more is taken from them")
		}
	}
	return Refuse("too_many", "more than %d requests a second; wait a little", perSecond)
}

// use counts one of a limited number of things.
func (d *Server) use(what string, of int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used[what] >= of {
		return Refuse("too_many", "an attempt has %d %s, and this one has used them", of, what)
	}
	d.used[what]++
	return nil
}

func (d *Server) giveBack(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[what]--
}

// hold takes a lock that a slow client may keep, or gives up when the request ends.
func hold(ctx context.Context, lock chan struct{}) (release func(), err error) {
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *Server) milestone(w http.ResponseWriter, r *http.Request, handlers Handlers) (any, error) {
	var m milestone
	if err := read(w, r, shortLimit, &m); err != nil {
		return nil, err
	}
	if err := checkText("the milestone", m.Text); err != nil {
		return nil, err
	}
	if err := d.use("milestones", MaxMilestones); err != nil {
		return nil, err
	}
	return struct{}{}, handlers.Milestone(r.Context(), m.Text)
}

func (d *Server) result(w http.ResponseWriter, r *http.Request, handlers Handlers) (any, error) {
	data, err := body(w, r, MaxResult)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, Refuse("invalid", "it is not JSON")
	}
	release, err := hold(r.Context(), d.deciding)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.use("results", MaxResults); err != nil {
		return nil, err
	}
	return struct{}{}, handlers.Result(r.Context(), data)
}

func (d *Server) ask(w http.ResponseWriter, r *http.Request, handlers Handlers) (any, error) {
	var a Ask
	if err := read(w, r, shortLimit, &a); err != nil {
		return nil, err
	}
	if err := checkAsk(a); err != nil {
		return nil, err
	}
	if err := d.use("questions", MaxAsks); err != nil {
		return nil, err
	}
	if err := d.use("open questions", MaxOpen); err != nil {
		return nil, err
	}
	defer d.giveBack("open questions")
	return handlers.Ask(r.Context(), a)
}

func (d *Server) artifact(w http.ResponseWriter, r *http.Request, handlers Handlers) (any, error) {
	name := r.PathValue("name")
	if err := checkName(name); err != nil {
		return nil, err
	}
	if r.ContentLength > MaxArtifact {
		return nil, Refuse("too_large", "artifact %s has %d bytes, at most %d are taken", name, r.ContentLength, int64(MaxArtifact))
	}
	release, err := hold(r.Context(), d.writing)
	if err != nil {
		return nil, err
	}
	defer release()
	left, err := d.room(name)
	if err != nil {
		return nil, err
	}
	if r.ContentLength > left {
		return nil, Refuse("too_large", "artifact %s has %d bytes, and %d are left for all", name, r.ContentLength, left)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(longBody))
	content := &counting{from: http.MaxBytesReader(w, r.Body, left)}
	file, err := handlers.Artifact(r.Context(), name, content)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += content.n
	return file, err
}

// room is how many bytes the artifact of that name may have.
func (d *Server) room(name string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.names[name] && len(d.names) >= MaxArtifacts {
		return 0, Refuse("too_many", "an attempt has %d artifacts, and this one has them", MaxArtifacts)
	}
	d.names[name] = true
	return min(MaxArtifact, MaxArtifactBytes-d.bytes), nil
}

// counting counts the bytes that are read.
type counting struct {
	from io.Reader
	n    int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}
