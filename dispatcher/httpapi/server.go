// Package httpapi is the pool over HTTP. Each operation of [operation.All] has a route
// in one table, and a request to it becomes a request to a dispatcher, by the client
// that every other program uses, too.
//
//	request ─▶ host, origin ─▶ identity ─▶ route, role ─▶ client ─▶ dispatcher
//	   answer: JSON, a stream of events or a file, or a problem of RFC 9457 ◀──┘
//
// The package decides who may ask and translates; what a request means, and whether it
// is valid, a dispatcher decides. No request is answered without an identity, whatever
// address it comes from: programs in jails reach the loopback of their host. A [Server]
// holds nothing that another one would miss, so any number of them serve one pool, and a
// client may go on with another one where it lost the first.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-run/penstock/dispatcher/internal/sse"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/sandbox/connlimit"
)

// Config is what a server works with.
type Config struct {
	// Client asks with the role operator: which identity may ask for what, the server
	// has decided by then.
	Client *client.Client
	// Authenticate tells the identity of a request. An error that is an
	// [ErrUnauthenticated] says that it has none. Nil refuses every request.
	Authenticate func(*http.Request) (Identity, error)
	// Changes tells what changes in the pool behind a place, until its context ends. Nil:
	// there is no such stream.
	Changes func(ctx context.Context, after string) iter.Seq2[feed.Item, error]
	// Deliveries answers POST requests to /hooks/{name}, which carry proofs of their own
	// instead of an identity. Nil: there are no hooks.
	Deliveries http.Handler
	// Pages answers requests for the pages of people, /ui/ and what is under it. An error
	// says that the request has no identity, and why: what it is answered with then, is for
	// everyone. Nil: there are no pages.
	Pages func(w http.ResponseWriter, r *http.Request, who Identity, refused error)
	// Models answers requests of models to /mcp, with the body that was read. An error
	// says that it has not answered. Nil: models are not served.
	Models func(w http.ResponseWriter, r *http.Request, who Identity, body []byte) error
	// Attach carries requests about the terminals of the job in the path over a WebSocket. An
	// error says that it has not answered; again is that of the request's identity by then.
	// Nil: there are no terminals.
	Attach func(w http.ResponseWriter, r *http.Request, who Identity, again func() error) error
	// Hosts are names by which the server may be reached, besides localhost and the
	// address of the connection.
	Hosts   []string
	Version string // of the program
	// OpenAPI, AsyncAPI and Schema return what describes the interface, that of the bus, and the documents that it
	// takes and gives. An error of Schema says that it does not know the name. They come
	// from outside so that what a command prints is the same.
	OpenAPI, AsyncAPI func() ([]byte, error)
	Schema            func(name string) ([]byte, error)
	// Rate is how many requests a second an identity may make, and how many of an address
	// may have none, in bursts of twice as many; 0: any number.
	Rate float64
	// Refused keeps a request that has no identity, or one that may not, in the audit log.
	// Of many only some come here, and how many more there were. It may be nil.
	Refused func(ctx context.Context, e operation.AuditEntry)
	Logger  *slog.Logger
	Hooks   Hooks
}

// Hooks tell what happens in a server. Each may be nil.
type Hooks struct {
	// Answered: a request to a route, which is "" where the request has none.
	Answered func(route string, status int, took time.Duration)
}

// An Identity is who makes a request.
type Identity struct {
	Name string    // in a word; kept with what the request changes
	Role jobs.Role // none may nothing
}

// A Server answers HTTP requests. Make one with New.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	origin *http.CrossOriginProtection

	quiet    time.Duration // how long a stream may say nothing
	patience time.Duration // how long a client may take to receive a part of an answer

	guard *guard

	batches chan struct{} // has a value for each batch that is read

	ending    chan struct{} // closed when nothing should wait any longer
	endingNow sync.Once
}

// deliveries is the route of webhooks. It is in no table: it asks for no operation.
const deliveries = "POST /hooks/{name}"

// New returns a server. It does no I/O.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection(), quiet: sse.Quiet, patience: sse.Patience, batches: make(chan struct{}, batchesAtOnce), ending: make(chan struct{})}
	s.guard = newGuard(cfg)
	for _, route := range Routes() {
		s.mux.Handle(route.Method+" "+route.Path, s.handler(route))
	}
	if cfg.Deliveries != nil {
		s.mux.Handle(deliveries, cfg.Deliveries)
	}
	if cfg.Models != nil {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			s.mux.HandleFunc(method+" "+modelsPath, s.serveModels)
		}
	}
	return s
}

// Handler answers requests. [Server.Serve] is for listeners of its own.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, nil) })
}

// end lets what waits for something to happen return soon.
func (s *Server) end() { s.endingNow.Do(func() { close(s.ending) }) }

// untilEnding returns a context that ends also when the server is to end.
func (s *Server) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// A call is one request on its way, and what was sent of the answer to it.
type call struct {
	http.ResponseWriter
	r   *http.Request
	id  string // of the request, for those who search the log for it
	who Identity
	// unknown is why a request for a page has no identity; nil: it has one.
	unknown error
	body    []byte
	status  int // of the answer; 0: none was sent yet
	// patience is how long the client may take to receive a part of the answer.
	patience time.Duration
}

func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *call) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *call) control() *http.ResponseController { return http.NewResponseController(c) }

// serve answers a request. A connection that is counted may be closed for another one
// until the request is admitted.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, counted *connlimit.Conn) {
	began := time.Now()
	c := &call{ResponseWriter: w, r: r, id: jobs.NewID(), patience: s.patience}
	defer func() {
		p := s.recovered(c, recover())
		if s.cfg.Hooks.Answered != nil {
			s.cfg.Hooks.Answered(c.r.Pattern, c.status, time.Since(began))
		}
		if p != nil {
			panic(p)
		}
	}()
	for name, value := range securityHeaders {
		c.Header().Set(name, value)
	}
	c.Header().Set("X-Request-Id", c.id)
	if err := s.admit(c); err != nil {
		s.refuseStranger(c, err)
		return
	}
	if s.cfg.isPage(r) && c.unknown != nil {
		s.servePage(c) // to whom it is one of the first to be closed
		return
	}
	if counted != nil {
		if !counted.Begin() {
			panic(http.ErrAbortHandler) // closed a moment ago
		}
		defer counted.End()
	}
	if s.cfg.isPage(r) {
		s.servePage(c)
		return
	}
	if err := s.unrouted(c); err != nil {
		s.refuse(c, err)
		return
	}
	s.mux.ServeHTTP(c, r)
}

// recovered answers a request whose handler has panicked. It returns what net/http is
// to be told: that the connection ends, where a part of the answer has been sent that
// the client must not take for the whole.
func (s *Server) recovered(c *call, p any) any {
	if p == nil || p == any(http.ErrAbortHandler) {
		return p
	}
	s.cfg.Logger.Error("a request met a bug", "request", c.id, "method", c.r.Method, "route", c.r.Pattern, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if c.status != 0 {
		return http.ErrAbortHandler
	}
	s.refuse(c, errors.New("the server met a bug: its log has more, under the id of this request"))
	return nil
}

// handler makes a handler of a route.
func (s *Server) handler(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := w.(*call)
		err := route.permit(c.who)
		if err != nil {
			s.guard.keepRefused(c, route)
		}
		if err == nil && !route.Lines {
			err = c.readBody(route.Envelopes)
		}
		if err == nil {
			err = route.do(s, c, route)
		}
		if err == nil {
			return
		}
		if c.status != 0 {
			s.cfg.Logger.Info("an answer was cut", "request", c.id, "route", c.r.Pattern, "err", err)
			panic(http.ErrAbortHandler)
		}
		s.refuse(c, err)
	})
}
