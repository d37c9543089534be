package deliver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/webhook"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq="

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// A pool is a broker, a log of events and a deliverer that leads.
type pool struct {
	*testing.T
	nc    *nats.Conn
	queue *queue.Queue
	log   *session.Log
	store *webhook.Store
	said  *lockedBuffer
	cfg   deliver.Config
}

func newPool(t *testing.T) *pool {
	t.Helper()
	t.Parallel()
	return newPoolOn(t, jobstest.Start(t))
}

func newPoolOn(t *testing.T, server *jobstest.Server) *pool {
	t.Helper()
	nc := server.Connect()
	p := &pool{T: t, nc: nc, queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Webhooks(t, nc), said: new(lockedBuffer)}
	p.cfg = deliver.Config{Store: p.store, Sender: deliver.NewSender(loopback), Job: p.queue.Get, Logger: slog.New(slog.NewTextHandler(p.said, nil))}
	p.cfg = p.cfg.Scheduled(time.Hour, 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
	return p
}

// lead delivers until the test ends, or until it is told to end.
func (p *pool) lead() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		deliver.New(p.cfg).Run(ctx)
		close(done)
	}()
	end = func() {
		stop()
		<-done
	}
	p.Cleanup(end)
	return end
}

func (p *pool) add(name, url string, change ...func(*operation.WebhookRequest)) {
	p.Helper()
	want := operation.WebhookRequest{Name: name, URL: url, Secret: secret}
	for _, c := range change {
		c(&want)
	}
	if _, err := p.store.Add(jobstest.Context(p), want, "test", false); err != nil {
		p.Fatal(err)
	}
}

// tell appends events of a job to its log.
func (p *pool) tell(job string, kinds ...jobs.Kind) {
	p.Helper()
	trace := jobs.RootTrace(job)
	trace.State = "a=1"
	for _, kind := range kinds {
		e := event.New(event.JobClaimed{Worker: "w"})
		switch kind {
		case jobs.JobSubmitted:
			e = event.New(event.JobSubmitted{Queue: "default"})
		case jobs.JobReopened:
			e = event.New(event.JobReopened{})
		case jobs.OutputLine:
			e = event.New(event.OutputLine{Text: "x"})
		}
		if _, err := p.log.Append(jobstest.Context(p), session.Source{Job: job, Session: job, Trace: trace}, e); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *pool) until(what string, is func() bool) {
	p.Helper()
	for ctx := jobstest.Context(p); !is(); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			p.Fatalf("%s: it never is; the log has\n%s", what, p.said)
		}
	}
}

func (p *pool) hook(name string) operation.Webhook {
	p.Helper()
	list, err := p.store.List(jobstest.Context(p))
	if err != nil {
		p.Fatal(err)
	}
	for _, w := range list {
		if w.Name == name {
			return w
		}
	}
	return operation.Webhook{}
}

func (p *pool) deliveries(name string) []operation.Delivery {
	p.Helper()
	page, err := p.store.Deliveries(jobstest.Context(p), operation.DeliveriesRequest{Name: name}, 1<<20)
	if err != nil {
		p.Fatal(err)
	}
	return page.Deliveries
}

// states are how the attempts of a webhook have ended, in their order.
func (p *pool) states(name string) string {
	var all []string
	for _, d := range p.deliveries(name) {
		all = append(all, d.State)
	}
	return strings.Join(all, " ")
}

// A receiver is what webhooks are sent to.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	seen []received
}

type received struct {
	id, job string
	kind    jobs.Kind
	header  http.Header
	body    []byte
}

// receive answers each delivery with the status that answer returns for it.
func receive(t *testing.T, answer func(n int, got received, w http.ResponseWriter)) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return // the sender has ended
		}
		var e struct {
			Subject string     `json:"subject"`
			Data    jobs.Event `json:"data"`
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		got := received{request.Header.Get("webhook-id"), e.Subject, e.Data.Kind, request.Header, body}
		r.mu.Lock()
		r.seen = append(r.seen, got)
		n := len(r.seen)
		r.mu.Unlock()
		answer(n, got, w)
	}))
	t.Cleanup(r.Close)
	return r
}

func takesAll(int, received, http.ResponseWriter) {}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.seen...)
}

// trace are the kinds that arrived, in their order.
func (r *receiver) trace() string {
	var all []string
	for _, got := range r.all() {
		all = append(all, got.job+":"+strings.TrimPrefix(string(got.kind), "job."))
	}
	return strings.Join(all, " ")
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is of io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is of fmt.Stringer.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// An event arrives as a CloudEvent that the reference library finds genuine, and its id
// stays the same when it is delivered again.
func TestDelivery(t *testing.T) {
	p := newPool(t)
	r := receive(t, takesAll)
	p.tell("before", jobs.JobSubmitted)
	p.add("ci", r.URL+"/in?x=1", func(w *operation.WebhookRequest) { w.Events = []string{"job.submitted", "job.claimed"} })
	p.lead()
	p.tell("j1", jobs.JobSubmitted, jobs.OutputLine, jobs.JobReopened, jobs.JobClaimed)
	p.until("both have arrived", func() bool { return len(r.all()) == 2 && p.states("ci") == "delivered delivered" })
	if got := r.trace(); got != "j1:submitted j1:claimed" {
		t.Errorf("arrived are %s", got)
	}
	first := r.all()[0]
	check, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Verify(first.body, first.header); err != nil {
		t.Errorf("the signature: %v", err)
	}
	var ce map[string]any
	if err := json.Unmarshal(first.body, &ce); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"specversion": "1.0", "id": first.id, "type": "dev.penstock.job.submitted.v1", "source": "/penstock/default", "subject": "j1", "datacontenttype": "application/json", "traceparent": jobs.RootTrace("j1").Parent, "tracestate": "a=1"} {
		if ce[name] != want {
			t.Errorf("%s is %v, want %s", name, ce[name], want)
		}
	}
	if got := jobs.TraceOf(first.header); got.TraceID() != jobs.RootTrace("j1").TraceID() || got.State != "a=1" {
		t.Errorf("the request is part of %+v", got)
	}
	if got := first.header.Get("Content-Type"); got != "application/cloudevents+json" || first.id != "j1/1" {
		t.Errorf("content type %s, id %s", got, first.id)
	}
	if err := p.store.Redeliver(jobstest.Context(t), p.deliveries("ci")[0].ID); err != nil {
		t.Fatal(err)
	}
	p.until("it has arrived again", func() bool { return len(r.all()) == 3 })
	if got := r.all()[2]; got.id != first.id || !bytes.Equal(got.body, first.body) {
		t.Errorf("again it is %s %s", got.id, got.body)
	}
	p.until("nothing waits", func() bool {
		w := p.hook("ci")
		return w.Waiting == 0 && p.states("ci") == "delivered delivered delivered"
	})
}

// A failed delivery is tried again, holds back later events of its job, and no others;
// after the last attempt it is given up, and the next one has its turn.
func TestOrderAndRetries(t *testing.T) {
	p := newPool(t)
	r := receive(t, func(n int, got received, w http.ResponseWriter) {
		if got.job == "bad" && got.kind == jobs.JobSubmitted {
			w.WriteHeader(500)
			fmt.Fprint(w, "broken")
		}
	})
	p.add("ci", r.URL)
	p.lead()
	p.tell("bad", jobs.JobSubmitted, jobs.JobClaimed)
	p.tell("good", jobs.JobSubmitted, jobs.JobClaimed)
	p.until("all is settled", func() bool { return strings.Count(p.states("ci"), " ") == 6 })
	var bad, good []string
	for _, part := range strings.Fields(r.trace()) {
		if strings.HasPrefix(part, "bad") {
			bad = append(bad, part[4:])
		} else {
			good = append(good, part[5:])
		}
	}
	if got := fmt.Sprint(bad, good); got != "[submitted submitted submitted submitted claimed] [submitted claimed]" {
		t.Errorf("arrived are %s", got)
	}
	list := p.deliveries("ci")
	n := 0
	for _, d := range list {
		if d.Job == "bad" && d.Type == "job.submitted" {
			if n++; d.Attempt != n || d.Status != 500 || d.Response != "broken" || d.Error != "answered 500 Internal Server Error" || (d.Next == nil) != (n == 4) || (d.State == "given_up") != (n == 4) {
				t.Errorf("attempt %d is %+v", n, d)
			}
		}
	}
	if !strings.Contains(p.said.String(), `"event was not delivered" job=bad `) {
		t.Errorf("the log says %s", p.said)
	}
}
