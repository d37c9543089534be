package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/dispatcher/internal/sse"
	"github.com/penstock-run/penstock/sandbox/connlimit"
)

const (
	// connections bounds those that are open at once: each is a descriptor, which the
	// broker in the same process needs, too. Idle ones make room for new ones.
	connections = 1024
	// finishTime is how long requests have to finish when the server is to end.
	finishTime = 10 * time.Second
)

// Serve answers requests on l until ctx ends. Then streams end at once, other requests
// finish, and it returns when none is left. It closes l. A Server serves once. With a
// configuration it speaks TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:                      http.HandlerFunc(s.serveCounted),
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout:            10 * time.Second,
		ReadTimeout:                  sse.Patience, // of a whole request; what waits for something moves it
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               32 << 10,
		DisableGeneralOptionsHandler: true,
		TLSConfig:                    secure,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // of the mistakes of clients
	}
	room := connlimit.New(connections)
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		s.end()
		room.CloseIdle() // browsers hold some in store, which Shutdown would wait for
		finishing, done := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
		defer done()
		err := srv.Shutdown(finishing)
		if errors.Is(err, context.DeadlineExceeded) {
			err = srv.Close()
		}
		closed <- err
	}()
	limited := connlimit.Listen(l, room, ctx.Done())
	serve := srv.Serve
	if secure != nil {
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	err := serve(limited)
	stopped := ctx.Err() != nil // else it has failed
	cancel()
	ended := <-closed
	s.guard.keepMore(context.WithoutCancel(ctx), s.guard.refusals.Rest())
	if stopped {
		return ended
	}
	return err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// serveCounted says of a connection that a request is under way on it, once that is
// admitted: until then it may be closed for another one.
func (s *Server) serveCounted(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(connKey{})
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	limited := conn.(*connlimit.Conn)
	s.serve(w, r, limited)
}
