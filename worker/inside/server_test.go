package inside

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a server on the loopback, and the requests that reached its handlers.
type rig struct {
	*testing.T
	server  *Server
	address string
	client  *Client
	stop    func() // handlers of results wait for it

	mu         sync.Mutex
	milestones []string
	results    []string
	artifacts  map[string]int64
	shut       []string
	asked      chan Ask
	answers    chan Answer
	gone       atomic.Int32 // questions whose client has gone
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, server: NewServer(), artifacts: map[string]int64{}, asked: make(chan Ask, 100), answers: make(chan Answer)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	if r.client, err = NewClient(r.server.URL(r.address)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := r.server.Serve(ctx, l, r.handlers()); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { cancel(); served.Wait() }
	t.Cleanup(r.client.http.CloseIdleConnections)
	t.Cleanup(r.stop)
	return r
}

func (r *rig) handlers() Handlers {
	return Handlers{
		Milestone: func(_ context.Context, text string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.milestones = append(r.milestones, text)
			return nil
		},
		Result: func(_ context.Context, value json.RawMessage) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results = append(r.results, string(value))
			return nil
		},
		Artifact: func(_ context.Context, name string, content io.Reader) (jobs.Artifact, error) {
			sum := sha256.New()
			n, err := io.Copy(sum, content)
			if err != nil {
				return jobs.Artifact{}, fmt.Errorf("store %s: %w", name, err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.artifacts[name] = n
			return jobs.Artifact{Name: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
		},
		Ask: func(ctx context.Context, a Ask) (Answer, error) {
			r.asked <- a
			select {
			case answer := <-r.answers:
				return answer, nil
			case <-ctx.Done():
				r.gone.Add(1)
				return Answer{}, ctx.Err()
			}
		},
		Shut: func(why string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.shut = append(r.shut, why)
		},
	}
}

// refused expects a refusal with that code.
func (r *rig) refused(err error, code string) {
	r.Helper()
	if refused, _ := errors.AsType[*RefusedError](err); refused == nil || refused.Code != code {
		r.Errorf("got %v, want a refusal %q", err, code)
	}
}

func TestWhatComesThrough(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if err := errors.Join(r.client.Milestone(ctx, "half"), r.client.Result(ctx, []byte(`{"a":1}`))); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("x"), 1<<20)
	got, err := r.client.Artifact(ctx, "report.bin", bytes.NewReader(content), int64(len(content)))
	want := sha256.Sum256(content)
	if err != nil || got.SHA256 != hex.EncodeToString(want[:]) || got.Bytes != 1<<20 {
		t.Errorf("stored %+v, %v", got, err)
	}
	go func() { <-r.asked; r.answers <- Answer{"answered", "Red"} }()
	if answer, err := r.client.Ask(ctx, Ask{Question: control.Question{Question: "Paint it?"}}); err != nil || answer.Text != "Red" {
		t.Errorf("answered %+v, %v", answer, err)
	}
	if fmt.Sprint(r.milestones, r.results) != `[half] [{"a":1}]` {
		t.Errorf("came through: %v %v", r.milestones, r.results)
	}
}

// Malformed requests have no effect, and get the reason.
func TestWhatIsRefused(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	long := strings.Repeat("x", MaxText+1)
	r.refused(r.client.Milestone(ctx, " "), "invalid")
	r.refused(r.client.Milestone(ctx, long), "too_large")
	r.refused(r.client.Milestone(ctx, "a\x00b"), "invalid")
	r.refused(r.client.Milestone(ctx, strings.Repeat(long, 10)), "too_large")
	r.refused(r.client.Result(ctx, []byte(`{"a":`)), "invalid")
	r.refused(r.client.Result(ctx, []byte("\"\xff\"")), "invalid")
	r.refused(r.client.Result(ctx, []byte(`"`+strings.Repeat("x", MaxResult)+`"`)), "too_large")
	for _, name := range []string{"", ".", "..", "../x", "a/b", ".hidden", "a b", "ä", "x\n", strings.Repeat("x", 101)} {
		_, err := r.client.Artifact(ctx, name, strings.NewReader("x"), 1)
		r.refused(err, "invalid")
	}
	for _, path := range []string{"artifacts/..%2Fx", "artifacts/a%2Fb", "artifacts/%00"} {
		if err := r.client.do(ctx, request{"PUT", path, strings.NewReader("x"), 1}, &struct{}{}); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	for _, ask := range []string{`{}`, `{"question":"x","options":[{"label":"a"},{"label":"A "}]}`, `{"question":"x","timeout":"-1s"}`, `{"question":"x"}{}`, `{"question":"x","by":"root"}`, `[]`} {
		r.refused(r.client.do(ctx, request{"POST", "asks", strings.NewReader(ask), int64(len(ask))}, &struct{}{}), "invalid")
	}
	r.refused(other(r, "http://wrong@"+r.address).Milestone(ctx, "x"), "forbidden")
	if len(r.milestones)+len(r.results)+len(r.artifacts)+len(r.asked) > 0 {
		t.Errorf("came through: %v %v %v", r.milestones, r.results, r.artifacts)
	}
}

func other(r *rig, url string) *Client {
	r.Helper()
	c, err := NewClient(url)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.http.CloseIdleConnections)
	return c
}

// endless is content without an end.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// A gigabyte is refused before it is sent, and also if its size is unknown, in the
// middle. Nothing of it is kept.
func TestAnArtifactThatIsTooLarge(t *testing.T) {
	r := newRig(t)
	content := &endless{}
	_, err := r.client.Artifact(t.Context(), "big", content, 1<<30)
	r.refused(err, "too_large")
	if n := content.read.Load(); n > 16<<20 {
		t.Errorf("%d bytes were sent before it was refused", n)
	}
	for range 3 { // the third has no room at all
		content = &endless{}
		err = r.client.do(t.Context(), request{"PUT", "artifacts/big", content, -1}, &struct{}{})
		if err == nil || content.read.Load() > MaxArtifact+16<<20 {
			t.Errorf("%d bytes were sent: %v", content.read.Load(), err)
		}
	}
	r.stop()
	if len(r.artifacts) > 0 {
		t.Errorf("kept: %v", r.artifacts)
	}
	if r.server.bytes > MaxArtifactBytes+3 {
		t.Errorf("%d bytes were taken", r.server.bytes)
	}
}

// A connection that breaks in the middle leaves nothing.
func TestAnArtifactThatBreaksOff(t *testing.T) {
	r := newRig(t)
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "PUT /v1/artifacts/half HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: 100\r\n\r\nhalf of", basic(r.server))
	c.Close()
	r.stop()
	if len(r.artifacts) > 0 {
		t.Errorf("kept: %v", r.artifacts)
	}
}

func basic(d *Server) string {
	req := &http.Request{Header: http.Header{}}
	req.SetBasicAuth(d.token, "")
	return strings.TrimPrefix(req.Header.Get("Authorization"), "Basic ")
}

// A hundred thousand requests cost the worker a bounded number of answers, and shut the
// server for their sender.
func TestAFlood(t *testing.T) {
	r := newRig(t)
	one := "POST /v1/milestones HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + basic(r.server) + "\r\nContent-Length: 12\r\n\r\n{\"text\":\"x\"}"
	var senders sync.WaitGroup
	for range connections {
		senders.Go(func() {
			c, err := net.Dial("tcp", r.address)
			if err != nil {
				return // it has shut already
			}
			defer c.Close()
			senders.Go(func() { _, _ = io.Copy(io.Discard, c) }) // until it is cut
			_, _ = io.WriteString(c, strings.Repeat(one, 100_000/connections))
			<-r.server.shut
		})
	}
	senders.Wait()
	if err := r.client.Milestone(t.Context(), "x"); err == nil {
		t.Error("the server is open")
	}
	r.stop()
	if n := len(r.milestones); n < burst || n > MaxMilestones || len(r.shut) != 1 {
		t.Errorf("%d requests came through; the server was shut %d times", n, len(r.shut))
	}
	if r.server.refused > patience {
		t.Errorf("%d requests were refused", r.server.refused)
	}
	// The server has shut for the next run of the same attempt, too.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Serve(t.Context(), l, r.handlers()); err != nil {
		t.Error(err)
	}
}

// Requests that are not HTTP, or never end, do not block others.
func TestForgedFrames(t *testing.T) {
	r := newRig(t)
	head := "POST /v1/milestones HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + basic(r.server) + "\r\n"
	for _, frame := range []string{
		"\x00\x01\x02\xff", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		head + "Content-Length: 99999999999999999999\r\n\r\n", head + "Content-Length: -1\r\n\r\n",
		head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
		head + "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /v1/mi",
		head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		head + strings.Repeat("X: y\r\n", 100_000),
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
		"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
	} {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, frame) // it may be cut meanwhile
		_ = c.(*net.TCPConn).CloseWrite()
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && strings.Contains(line, " 200 ") {
			t.Errorf("%.60q was answered with %q", frame, line)
		}
		c.Close()
	}
	var silent []net.Conn
	for range connections - 1 {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, head)
		silent = append(silent, c)
	}
	if err := r.client.Milestone(t.Context(), "on"); err != nil {
		t.Errorf("beside them: %v", err)
	}
	for _, c := range silent {
		c.Close()
	}
	if fmt.Sprint(r.milestones) != "[on]" {
		t.Errorf("came through: %q", r.milestones)
	}
}

// Several questions wait at once, up to a limit; none outlives its client or the run.
func TestQuestionsThatWait(t *testing.T) {
	r := newRig(t)
	question := Ask{Question: control.Question{Question: "Paint it?"}}
	var asking sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	for i := range MaxOpen {
		asking.Go(func() {
			ctx := ctx
			if i > 0 {
				ctx = t.Context()
			}
			if _, err := r.client.Ask(ctx, question); err == nil {
				t.Error("a question was answered that nobody has answered")
			}
		})
	}
	for range MaxOpen {
		<-r.asked
	}
	_, err := r.client.Ask(t.Context(), question)
	r.refused(err, "too_many")
	leave()
	for deadline := time.Now().Add(time.Minute); r.gone.Load() < 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := r.gone.Load(); n != 1 {
		t.Errorf("%d questions are withdrawn whose asker has gone, want 1", n)
	}
	r.stop()
	asking.Wait()
	if n := r.gone.Load(); n != MaxOpen {
		t.Errorf("%d questions have ended with the run, want %d", n, MaxOpen)
	}
}
