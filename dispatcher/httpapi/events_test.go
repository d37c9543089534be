package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// listen serves on an address until stop is called, which waits for the end.
func (p *pool) listen(address string, change func(*httpapi.Server)) (url string, stop func()) {
	p.t.Helper()
	return p.listenAs(p.config(), address, change)
}

func (p *pool) listenAs(cfg httpapi.Config, address string, change func(*httpapi.Server)) (url string, stop func()) {
	p.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	server := httpapi.New(cfg)
	if change != nil {
		change(server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, nil) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("serve: %v", err)
		}
	}
	p.t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// A running job has a writer of its session.
type running struct {
	*session.Writer
	claim *queue.Claim
	id    string
}

func (p *pool) run() running {
	p.t.Helper()
	p.submitted()
	return p.write(jobstest.Claim(p.t, p.queue, "w"))
}

// write begins the session of an attempt.
func (p *pool) write(claim *queue.Claim) running {
	p.t.Helper()
	rec := claim.Record()
	writer, err := p.log.Writer(jobstest.Context(p.t), session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()}, event.New(event.JobClaimed{Worker: rec.Worker, Epoch: claim.Epoch()}))
	if err != nil {
		p.t.Fatal(err)
	}
	return running{writer, claim, rec.ID}
}

// say appends a message of the agent.
func (p *pool) say(r running, text string) {
	p.t.Helper()
	e := event.New(event.Message{Role: "assistant", Text: text})
	e.Raw = &jobs.Raw{Stream: "stdout", N: 1, Text: text}
	if err := r.Append(jobstest.Context(p.t), e); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pool) finish(r running) {
	p.t.Helper()
	if _, err := r.claim.Settle(jobstest.Context(p.t), jobs.Ended{Outcome: jobs.Success}, p.log.Finisher(p.store.Result)); err != nil {
		p.t.Fatal(err)
	}
}

// A reader is a client of a stream that goes on where it was cut, as a browser does.
type reader struct {
	t     *testing.T
	url   string
	last  string   // the id of the last event
	got   []string // id and name of each
	quiet func()   // is called at each comment, if not nil
}

// read reads a stream until it is cut, or n events have come, or the last one. It reports
// whether it was the last one, and returns the status.
func (r *reader) read(n int) (ended bool, status int) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(jobstest.Context(r.t))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer viewer")
	req.Header.Set("Accept", "text/event-stream")
	if r.last != "" {
		req.Header.Set("Last-Event-ID", r.last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, 0 // the server is not there
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	id, name := "", ""
	for n > 0 && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			if !json.Valid([]byte(value)) {
				r.t.Errorf("event %s has data %q", id, value)
			}
		case "":
			if strings.HasPrefix(lines.Text(), ":") {
				if r.quiet != nil {
					r.quiet()
				}
			} else if name == "end" {
				return true, res.StatusCode
			} else if name != "" {
				r.got, r.last = append(r.got, id+" "+name), id
				id, name = "", ""
				n--
			}
		}
	}
	return false, res.StatusCode
}

// whole reports events that are missing, come twice, or are in another order.
func (r *reader) whole(p *pool, id string) {
	r.t.Helper()
	var wanted []string
	after := uint64(0)
	for {
		page := want[operation.EventsPage](r.t, p.ask(jobs.RoleViewer, fmt.Sprintf("GET /v1/jobs/%s/events?after=%d", id, after), ""), 200)
		for _, e := range page.Events {
			wanted, after = append(wanted, strconv.FormatUint(e.Seq, 10)+" "+string(e.Kind)), e.Seq
		}
		if len(page.Events) == 0 {
			break
		}
	}
	if fmt.Sprint(r.got) != fmt.Sprint(wanted) {
		r.t.Errorf("the stream had %d events\n%v\nwant %d\n%v", len(r.got), r.got, len(wanted), wanted)
	}
}

// A client that goes on where it was cut has each event once, and in order, over cuts of
// the connection and restarts of the server. The last event says that nothing comes any
// more, and who asks again is told the same.
func TestAStreamOverCutsAndRestarts(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	url, stop := p.listen("127.0.0.1:0", nil)
	address := strings.TrimPrefix(url, "http://")
	r := &reader{t: t, url: url + "/v1/jobs/" + job.id + "/events"}
	said := make(chan struct{})
	go func() {
		defer close(said)
		for n := range 120 {
			p.say(job, fmt.Sprint("line\n", n))
		}
		p.finish(job)
	}()
	for cut := range 6 { // in the middle, wherever that is
		if ended, _ := r.read(7 + cut); ended {
			t.Fatal("the stream has ended before the job")
		}
		if cut%2 == 1 {
			stop()
			_, stop = p.listen(address, nil)
		}
	}
	ended, status := false, 0
	for end := time.Now().Add(jobstest.Patience); !ended && time.Now().Before(end); {
		ended, status = r.read(1000)
	}
	<-said
	if !ended || status != http.StatusOK {
		t.Fatalf("the stream has not ended: %d", status)
	}
	r.whole(p, job.id)
	if _, status := r.read(1); status != http.StatusNoContent {
		t.Errorf("behind the end: %d, want 204, which lets a browser ask no more", status)
	}
	r.last = "x"
	if _, status := r.read(1); status != http.StatusBadRequest {
		t.Errorf("behind no event: %d", status)
	}
}

// A stream that waits says so now and then, and ends at once when the server is to end.
func TestAQuietStream(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	url, stop := p.listen("127.0.0.1:0", func(s *httpapi.Server) { s.Hasten(20*time.Millisecond, time.Minute) })
	var reading, waiting sync.WaitGroup
	for range 10 { // what goes wrong at the end does not do so each time
		waiting.Add(1)
		reading.Go(func() {
			r := reader{t: t, url: url + "/v1/jobs/" + job.id + "/events"}
			r.read(2) // submitted and claimed
			r.quiet = sync.OnceFunc(waiting.Done)
			if ended, _ := r.read(1); ended {
				t.Error("the end of the server is told as the end of the job")
			}
		})
	}
	waiting.Wait()
	began := time.Now()
	stop()
	reading.Wait()
	if took := time.Since(began); took > jobstest.Patience/2 {
		t.Errorf("the streams have ended after %v", took)
	}
}

// A client that does not read loses its connection, and nothing else: what it has not
// taken is there when it asks again.
func TestAStreamThatIsNotRead(t *testing.T) {
	t.Parallel()
	p := open(t)
	job := p.run()
	cut := make(chan string, 10)
	p.hooks.Answered = func(route string, _ int, _ time.Duration) { cut <- route }
	url, _ := p.listen("127.0.0.1:0", func(s *httpapi.Server) { s.Hasten(time.Minute, 300*time.Millisecond) })
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer viewer\r\nAccept: text/event-stream\r\n\r\n", job.id); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 100<<10)
	for range 30 { // more than the buffers of the kernel hold
		p.say(job, long)
	}
	p.finish(job)
	select {
	case route := <-cut:
		if route != "GET /v1/jobs/{id}/events" {
			t.Errorf("the end of %q", route)
		}
	case <-time.After(jobstest.Patience):
		t.Fatal("a client that does not read keeps its connection")
	}
	taken, err := io.ReadAll(c)
	if strings.Contains(string(taken), "event: end") || len(taken) > 15<<20 {
		t.Errorf("the client that does not read was sent everything, %d bytes: %v", len(taken), err)
	}
	r := &reader{t: t, url: url + "/v1/jobs/" + job.id + "/events"}
	if ended, _ := r.read(1000); !ended {
		t.Error("the stream has no end")
	}
	r.whole(p, job.id)
}
