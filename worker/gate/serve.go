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
)

// ServeHTTP has h answer what programs of a jail send to l, over at most that
// many connections at once, until ctx ends or l is closed. Then it cuts what is
// under way, and returns when nothing of it is left. It closes l.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler, connections int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler: h,
		// Close does not wait for the goroutines of its connections; this does.
		// The first state is set before the goroutine begins.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed:
				conns.Done()
			}
		},
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout:            10 * time.Second,
		IdleTimeout:                  5 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0), // it would tell of the agent's mistakes
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		_ = srv.Close() // the listener may be closed already
	}()
	err := srv.Serve(&limited{Listener: l, free: make(chan struct{}, connections), done: ctx.Done()})
	cancel()
	<-closed
	conns.Wait()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
