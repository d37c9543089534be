package socket_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/socket"
	"github.com/penstock-run/penstock/jobs/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server whose connections do what a test says, the first, the second and so
// on, and returns a socket for it.
func serve(t *testing.T, silence time.Duration, each ...func(*websocket.Conn)) *socket.Socket {
	t.Helper()
	var connections atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(connections.Add(1))
		if n > len(each) {
			http.Error(w, "no more", http.StatusForbidden)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		each[n-1](conn)
		_ = conn.CloseNow() // the test may have
	}))
	t.Cleanup(server.Close)
	s := socket.New(socket.Config{
		Request: func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		},
		Transport: &http.Transport{}, Within: 10 * time.Second, Silence: silence,
		Refusal: func(res *http.Response) error { return errors.New("refused: " + res.Status) }, Unsent: func(err error) error { return err },
	})
	t.Cleanup(s.Close)
	return s
}

// takes reads a call.
func takes(t *testing.T, conn *websocket.Conn) terminal.Call {
	t.Helper()
	_, data, err := conn.Read(t.Context())
	call, wrong := terminal.DecodeCall(data)
	if err := errors.Join(err, wrong); err != nil {
		t.Error(err)
	}
	return call
}

// answers replies to a call with what it asked from.
func answers(t *testing.T, conn *websocket.Conn, call terminal.Call) {
	t.Helper()
	data, err := json.Marshal(terminal.Reply{Number: call.Number, Answer: terminal.Answer{From: call.Request.From}})
	if err == nil {
		err = conn.Write(t.Context(), websocket.MessageText, data)
	}
	if err != nil {
		t.Error(err)
	}
}

func read(from int64) terminal.Request {
	return terminal.Request{Verb: terminal.Read, Attempt: 1, Terminal: 1, From: from}
}

// Each call gets its own reply, in whatever order they come.
func TestReplies(t *testing.T) {
	t.Parallel()
	const many = 4
	s := serve(t, time.Minute, func(conn *websocket.Conn) {
		var calls []terminal.Call
		for range many {
			calls = append(calls, takes(t, conn))
		}
		for i := range calls {
			answers(t, conn, calls[many-1-i])
		}
		_, _, _ = conn.Read(t.Context()) // its end
	})
	var all sync.WaitGroup
	for from := range int64(many) {
		all.Go(func() {
			if got, err := s.Ask(t.Context(), read(from)); err != nil || got.From != from {
				t.Errorf("%d got %+v, %v", from, got, err)
			}
		})
	}
	all.Wait()
}

// A server that ends may still have answered: what it has done is not told as lost.
func TestTheLastReply(t *testing.T) {
	t.Parallel()
	each := make([]func(*websocket.Conn), 100)
	for i := range each {
		each[i] = func(conn *websocket.Conn) {
			answers(t, conn, takes(t, conn))
			_ = conn.CloseNow()
		}
	}
	s := serve(t, time.Minute, each...)
	for from := range int64(len(each)) {
		got, err := s.Ask(t.Context(), read(from))
		if err != nil || got.From != from {
			t.Fatalf("call %d got %+v, %v", from, got, err)
		}
		s.Close()
	}
}

// A connection that is lost fails the calls that wait, with the reason, and the next call
// makes another one.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, 500*time.Millisecond,
		func(conn *websocket.Conn) {
			takes(t, conn)
			_ = conn.Close(websocket.StatusGoingAway, "the server ends") // the reader hears it, and is gone
		},
		func(conn *websocket.Conn) {
			takes(t, conn)
			if err := conn.Write(t.Context(), websocket.MessageText, []byte("{")); err != nil {
				t.Error(err)
			}
			_, _, _ = conn.Read(t.Context()) // its end
		},
		func(conn *websocket.Conn) {
			takes(t, conn)
			_, _, _ = conn.Read(t.Context()) // says nothing until its end
		},
		func(conn *websocket.Conn) {
			answers(t, conn, takes(t, conn))
			_, _, _ = conn.Read(t.Context())
		},
	)
	for _, want := range []string{"the server ends", "a reply", "lost"} {
		if _, err := s.Ask(t.Context(), read(1)); !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got, err := s.Ask(t.Context(), read(7)); err != nil || got.From != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	s.Close()
	if _, err := s.Ask(t.Context(), read(8)); err == nil || err.Error() != "refused: 403 Forbidden" {
		t.Errorf("a server that refuses: %v", err)
	}
}

// The end of one call's context leaves the connection to the others.
func TestACallThatIsGivenUp(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, func(conn *websocket.Conn) {
		late := takes(t, conn)
		answers(t, conn, takes(t, conn))
		answers(t, conn, late)
		answers(t, conn, takes(t, conn))
		_, _, _ = conn.Read(t.Context()) // its end
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Ask(ctx, read(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	for from := int64(2); from < 4; from++ {
		if got, err := s.Ask(t.Context(), read(from)); err != nil || got.From != from {
			t.Errorf("%d got %+v, %v", from, got, err)
		}
	}
}
