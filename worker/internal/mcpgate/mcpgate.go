// Package mcpgate passes messages between the agent in a jail and the MCP servers of its job that
// have a URL.
//
//	agent ─stdio─▶ penstock mcp-bridge ─▶ worker/inside ─▶ Gate ── may it call this tool? ── + headers ─▶ server
//	                                                         ◀────── without the values of secrets ◀──────┘
//
// The jail chooses a server by name, and knows neither its URL nor its headers, in which secrets
// are. It chooses no path, no query and no other header than those of the protocol. Each message
// is read and written anew, so the server gets what was checked.
package mcpgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/scrub"
)

// Limits of one attempt.
const (
	// MaxMessage is the size of a message of the agent.
	MaxMessage = 1 << 20
	// parallel bounds the requests under way, of which streams stay open; more wait.
	parallel = 64
	// minSecret is the length of secrets that are removed from answers. Shorter ones would
	// remove what is none.
	minSecret = 6
)

// connecting bounds how long a connection may take. How long a server may take to answer is for
// the agent to say, which hangs up.
const connecting = 20 * time.Second

// Config is what a gate has from its attempt.
type Config struct {
	Servers map[string]jobs.MCPServer // those without a URL are ignored
	Secret  func(name string) string
	// Connect connects to the host and port of a server.
	Connect func(ctx context.Context, authority string) (net.Conn, error)
	// Refused is called for each message that is not passed on. It may be nil.
	Refused func(server, why string)
}

// A Gate is the agent's way to its servers. It is an [http.Handler] of requests whose path value
// "name" names the server.
type Gate struct {
	cfg     Config
	client  *http.Transport
	servers map[string]server
	slots   chan struct{}
}

// A server is where the messages for a name go.
type server struct {
	jobs.MCPServer

	url     *url.URL
	header  map[string]string
	secrets []string // that answers must not have
}

// New returns a gate to the servers with a URL, or nil if there is none.
func New(cfg Config) *Gate {
	g := &Gate{cfg: cfg, servers: map[string]server{}, slots: make(chan struct{}, parallel)}
	for name, s := range cfg.Servers {
		to, err := url.Parse(s.URL)
		if s.URL == "" || err != nil { // a URL that cannot be read is refused when the job is submitted
			continue
		}
		at := server{MCPServer: s, url: to}
		at.header = s.Header(func(name string) string {
			value := cfg.Secret(name)
			if len(value) >= minSecret {
				at.secrets = append(at.secrets, value)
			}
			return value
		})
		g.servers[name] = at
	}
	if len(g.servers) == 0 {
		return nil
	}
	g.client = &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return cfg.Connect(ctx, address) },
		TLSHandshakeTimeout:    connecting,
		ForceAttemptHTTP2:      true,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true, // answers are searched for secrets
		MaxResponseHeaderBytes: 64 << 10,
	}
	return g
}

// Close closes idle connections. The others end with their requests.
func (g *Gate) Close() { g.client.CloseIdleConnections() }

// The headers of the protocol that pass.
var (
	fromAgent  = []string{"Accept", "Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-Id"}
	fromServer = []string{"Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version", "Retry-After"}
)

// ServeHTTP passes one request on, and its answer back.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	s, ok := g.servers[name]
	if !ok {
		refuse(w, http.StatusNotFound, "the job has no MCP server %.100q with a url", name)
		return
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	out, err := g.request(w, r, s)
	if denied, is := errors.AsType[*deniedError](err); is {
		if g.cfg.Refused != nil {
			g.cfg.Refused(name, denied.why)
		}
		denied.answer(w)
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	res, err := g.client.RoundTrip(out)
	if err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		refuse(w, http.StatusBadGateway, "MCP server %s: %v", name, s.clean(err.Error()))
		return
	}
	defer res.Body.Close()
	switch packed := res.Header.Get("Content-Encoding"); {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		refuse(w, http.StatusBadGateway, "MCP server %s answers that it is elsewhere (%d); the job has to name that URL", name, res.StatusCode)
	case packed != "" && packed != "identity":
		refuse(w, http.StatusBadGateway, "MCP server %s sent a compressed answer, which was not asked for", name)
	default:
		s.pass(w, res)
	}
}

// request is the request for the server: of the agent's it has the method, the headers of the
// protocol and the message that was checked.
func (g *Gate) request(w http.ResponseWriter, r *http.Request, s server) (*http.Request, error) {
	header := http.Header{}
	for _, name := range fromAgent {
		if v := r.Header.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	var body []byte
	switch r.Method {
	case http.MethodPost:
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
		if large, is := errors.AsType[*http.MaxBytesError](err); is {
			return nil, fmt.Errorf("the message has more than %d bytes", large.Limit)
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the agent hung up
		}
		m, err := read(data)
		if err != nil {
			return nil, err
		}
		if err := m.permit(s.MCPServer); err != nil {
			return nil, err
		}
		body = m.content
		m.describe(header)
		header.Set("Content-Type", "application/json")
	case http.MethodGet, http.MethodDelete:
	default:
		return nil, fmt.Errorf("method %.20q is not one of the protocol", r.Method)
	}
	// The answer takes as long as it takes: a deadline that remained would end the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	for name, value := range s.header {
		header.Set(name, value)
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, s.url.String(), strings.NewReader(string(body)))
	if err != nil {
		return nil, errors.New("the server's URL cannot be called")
	}
	if body == nil {
		out.Body, out.ContentLength = http.NoBody, 0
	}
	out.Header = header
	return out, nil
}

// pass sends an answer to the agent, each piece at once.
func (s server) pass(w http.ResponseWriter, res *http.Response) {
	for _, name := range fromServer {
		if v := res.Header.Get(name); v != "" && s.clean(v) == v {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(res.StatusCode)
	control, blank := http.NewResponseController(w), scrub.New(s.secrets...)
	if control.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		piece := blank.Next(buf[:n])
		if err != nil {
			piece = slices.Concat(piece, blank.Rest())
		}
		if _, failed := w.Write(piece); failed != nil || control.Flush() != nil {
			panic(http.ErrAbortHandler)
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the answer is incomplete; to end it normally would hide that
		}
	}
}

// clean removes the server's secrets from a text.
func (s server) clean(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// refuse answers the agent in place of the server.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	http.Error(w, "penstock: "+fmt.Sprintf(format, args...), status)
}
