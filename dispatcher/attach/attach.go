// Package attach serves the terminals of jobs over WebSockets.
//
//	browser, penstock attach ══WebSocket══▶ Server ─▶ client ─▶ worker of the session
//
// A connection carries calls of package terminal and their replies. Viewers pull: each
// asks for the output after an offset, and counts what it has typed. So a [Server] keeps
// no output and no place in it. A viewer whose connection is lost repeats its request at
// this server or another one, and neither misses output nor types anything twice. For a
// viewer that does not read, the server holds the answers to the few requests that it
// takes at once, and then closes the connection; worker and agent do not notice.
package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

const (
	// Connections is how many are open at once.
	Connections = 128
	// Calls is how many requests of a connection are under way at once. The next one is
	// read when one of them has been answered.
	Calls = 8

	// askTime is how long a worker may take to answer.
	askTime = terminal.Patience + 10*time.Second
)

// Config is what a server works with.
type Config struct {
	Client *client.Client // with the role operator
	// Attached keeps in the audit log that somebody attaches, before anything is answered.
	Attached func(context.Context, operation.AuditEntry)
	Logger   *slog.Logger // nil: silent
	// Quiet is how long a connection may carry nothing before it is pinged, since proxies
	// cut those that do. As often the credential is looked at again. 0: 15 seconds.
	Quiet time.Duration
	// Patience is how long a viewer may take to receive an answer, or to answer a ping.
	// 0: 30 seconds.
	Patience time.Duration
	// Unused is how long a connection may be open without a request. 0: two minutes.
	Unused time.Duration
}

// A Server serves terminals. Make one with New.
type Server struct {
	cfg    Config
	places chan struct{} // has a value for each connection
	ending chan struct{} // closed when connections are to end
}

// New returns a server. It does no I/O.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Quiet = cmp.Or(cfg.Quiet, 15*time.Second)
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	cfg.Unused = cmp.Or(cfg.Unused, 2*time.Minute)
	return &Server{cfg: cfg, places: make(chan struct{}, Connections), ending: make(chan struct{})}
}

// Run waits until ctx ends, and then ends all connections. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	close(s.ending)
	for range cap(s.places) { // each is free when its connection has ended
		s.places <- struct{}{}
	}
	return nil
}

// Serve carries requests about the terminals of the job that the path names, until the
// connection ends. An error says that it did not begin, and nothing was answered. The
// caller has compared the origins; again says whether it would still admit the request.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, who httpapi.Identity, again func() error) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{
			Field: "Upgrade", Reason: "is not websocket: terminals take a WebSocket, which a proxy on the way has to pass on",
		}}}
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { <-s.places }()
	asking := s.cfg.Client.As(who.Name).OnBehalf(who.Name, who.Role, "http")
	rec, err := asking.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if rec.State == jobs.Finished {
		return &jobs.CodedError{Code: jobs.CodeFinished, Message: fmt.Sprintf("job %s has ended, and the agent's terminals with it", rec.ID)}
	}
	s.cfg.Attached(r.Context(), operation.AuditEntry{Operation: "attach", About: rec.ID, Who: who.Name, Role: who.Role, Via: "http", Outcome: audit.Done})
	// The origin was compared before, as it is for everything that changes something.
	log := s.cfg.Logger.With(rec.LogFields()...)
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		log.Info("a connection for terminals did not begin", "who", who.Name, "err", err)
		return nil // it has been answered
	}
	terminals := asking.Terminals(rec)
	defer terminals.Close()
	c := newConnection(s.cfg, socket, &viewer{who: who.Name, rec: rec, client: asking, terminals: terminals})
	err = c.run(context.WithoutCancel(r.Context()), s.ending, again)
	log.Info("a connection for terminals has ended", "who", who.Name, "err", err)
	return nil
}

// enter takes a place for a connection.
func (s *Server) enter() error {
	select {
	case <-s.ending:
		return &jobs.CodedError{Code: jobs.CodeUnavailable, Message: "the server ends"}
	default:
	}
	select {
	case s.places <- struct{}{}:
		return nil
	default:
		return &jobs.CodedError{Code: jobs.CodeBusy, Message: fmt.Sprintf("%d connections for terminals are open, as many as there may be", Connections)}
	}
}

// A viewer is who asks over a connection.
type viewer struct {
	who       string
	rec       jobs.Record
	client    *client.Client
	terminals *client.Terminals
}

// ask answers a request. What the session's log says of it names the identity.
func (v *viewer) ask(ctx context.Context, r terminal.Request) terminal.Answer {
	ctx, done := context.WithTimeout(ctx, askTime)
	defer done()
	r.By = v.who
	answer, err := v.terminals.Ask(ctx, r)
	if err == nil {
		return answer
	}
	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
		return terminal.Answer{Error: refused}
	}
	if errors.Is(err, session.ErrNobody) {
		if now, err := v.client.Get(ctx, v.rec.ID); err == nil && now.State == jobs.Finished {
			return terminal.Answer{Error: control.Refuse(control.Finished, "job %s has ended, and the agent's terminals with it", v.rec.ID)}
		}
	}
	return terminal.Answer{Error: control.Refuse(terminal.Away, "%v", err)}
}
