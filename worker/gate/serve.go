package gate

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-run/penstock/sandbox/connlimit"
)

// strangerTime is how long a request without credentials may take.
const strangerTime = time.Second

// A Server answers HTTP on one listener. Every listener of a worker is served by one,
// so each of them decides which requests to admit.
type Server struct {
	Handler http.Handler
	// Auth reports whether a request has the right credentials. The zero value admits
	// no request; see [Public].
	Auth func(r *http.Request) bool
	// Deny answers a request that does not; nil is a plain 401.
	Deny http.HandlerFunc
	// Connections bounds the open connections. A connection without a request under way
	// makes room for another one.
	Connections int
}

// Public is the Auth of health and metrics, which every client may request.
func Public(*http.Request) bool { return true }

// connKey is the context key of a request's connection.
type connKey struct{}

// Serve answers requests on l until ctx ends or l is closed. Then it cuts those under
// way, and returns when none is left. It closes l.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler: http.HandlerFunc(s.handle),
		// Close does not wait for the goroutines of its connections; this does. The
		// first state is set before the goroutine begins.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed:
				conns.Done()
			}
		},
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout:            10 * time.Second,
		IdleTimeout:                  5 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0), // it would log the agent's mistakes
	}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = srv.Close() // the listener may be closed already
	})
	err := srv.Serve(connlimit.Listen(l, connlimit.New(s.Connections), ctx.Done()))
	cancel()
	<-closed
	conns.Wait()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// handle admits requests with the right credentials. When there are too many
// connections, it closes those without them, and idle ones, first.
func (s Server) handle(w http.ResponseWriter, r *http.Request) {
	if s.Auth == nil || !s.Auth(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerTime)) // every connection of ours has one
		w.Header().Set("Connection", "close")
		if s.Deny == nil {
			http.Error(w, "no credentials, or wrong ones", http.StatusUnauthorized)
			return
		}
		s.Deny(w, r)
		return
	}
	conn := r.Context().Value(connKey{}).(*connlimit.Conn)
	if !conn.Begin() {
		panic(http.ErrAbortHandler) // closed a moment ago
	}
	defer conn.End()
	s.Handler.ServeHTTP(w, r)
}
