// Package socket makes calls about terminals over a WebSocket, and another one when that is
// lost.
//
//	Ask ──▶ connection, dialed where there is none ──call, by number──▶ server
//	 └──◀── answer ──────────────────────────────────reply, by number──┘
package socket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// maxReply bounds a reply: an answer has the output as base64.
const maxReply = 2*terminal.MaxOutput + 1<<20

// Config says how to reach a server.
type Config struct {
	// Request returns the request that asks for the WebSocket, with its credential.
	Request func(context.Context) (*http.Request, error)
	// Transport is that of other requests to the server; a copy is used.
	Transport *http.Transport
	// Refusal is why an answer is no WebSocket.
	Refusal func(*http.Response) error
	// Unsent is the error of a request that got no answer.
	Unsent  func(error) error
	Within  time.Duration // how long to wait until a connection is there, or a call is sent
	Silence time.Duration // how long a server may say nothing before it is taken for lost
}

// A Socket makes calls. Its methods may be called from any goroutine.
type Socket struct {
	cfg Config
	// link holds the connection, or nil, while it is not being replaced.
	link chan *link
}

// New returns a socket. It does no I/O.
func New(cfg Config) *Socket {
	s := &Socket{cfg: cfg, link: make(chan *link, 1)}
	s.link <- nil
	return s
}

// Ask makes a call. The error of a lost connection is a [jobs.ErrUnavailable]: the server
// may have taken the call. Others are those of Config, and the cause of ctx.
func (s *Socket) Ask(ctx context.Context, r terminal.Request) (terminal.Answer, error) {
	l, err := s.connected(ctx)
	if err != nil {
		return terminal.Answer{}, err
	}
	return l.ask(ctx, r, s.cfg.Within)
}

// Close closes the connection. Calls after it make another one.
func (s *Socket) Close() {
	l := <-s.link
	if l != nil {
		l.close()
	}
	s.link <- nil
}

// connected returns a connection that is not known to be lost.
func (s *Socket) connected(ctx context.Context) (*link, error) {
	var l *link
	select {
	case l = <-s.link:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l != nil && !l.isLost() {
		s.link <- l
		return l, nil
	}
	if l != nil {
		l.close()
	}
	l, err := s.dial(ctx)
	s.link <- l
	return l, err
}

// dial opens a WebSocket. HTTP/2 has none.
func (s *Socket) dial(ctx context.Context) (*link, error) {
	ctx, done := context.WithTimeout(ctx, s.cfg.Within)
	defer done()
	request, err := s.cfg.Request(ctx)
	if err != nil {
		return nil, err
	}
	h := &handshake{Transport: s.cfg.Transport.Clone(), refusal: s.cfg.Refusal}
	h.ForceAttemptHTTP2, h.DisableKeepAlives, h.Protocols = false, true, new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	l := newLink(s.cfg.Silence)
	l.socket, _, err = websocket.Dial(ctx, request.URL.String(), &websocket.DialOptions{ //nolint:bodyclose // the WebSocket has it
		HTTPClient: &http.Client{Transport: h, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		HTTPHeader: request.Header, OnPingReceived: func(context.Context, []byte) bool { l.heard(); return true },
	})
	switch {
	case h.refused != nil:
		return nil, h.refused
	case err != nil:
		return nil, s.cfg.Unsent(err)
	}
	l.socket.SetReadLimit(maxReply)
	l.begin()
	return l, nil
}

// A handshake keeps why a server has not begun a WebSocket.
type handshake struct {
	*http.Transport
	refusal func(*http.Response) error
	refused error
}

func (h *handshake) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.Transport.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusSwitchingProtocols {
		h.refused = h.refusal(answer)
	}
	return answer, err
}

// lost is the error of calls on a connection that is gone.
func lost(why error) error {
	if told, ok := errors.AsType[websocket.CloseError](why); ok {
		return fmt.Errorf("%w: the server closed the connection: %q", jobs.ErrUnavailable, told.Reason)
	}
	return fmt.Errorf("%w: the connection is lost: %w", jobs.ErrUnavailable, why)
}
