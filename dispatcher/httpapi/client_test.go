package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// dial opens a client of an HTTP server with the token of a role.
func dial(t *testing.T, address string, role jobs.Role) *client.Client {
	t.Helper()
	c, err := client.OpenHTTP(jobstest.Context(t), client.HTTPConfig{Server: address, Token: string(role), By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// bus opens a client on the broker.
func (p *pool) bus() *client.Client {
	p.t.Helper()
	c, err := client.Open(jobstest.Context(p.t), p.nc, client.Config{By: "test"})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// A read answers what ask returns.
type read struct {
	name string
	ask  func(context.Context, *client.Client) (any, error)
}

func reads(id, letter string) []read {
	return []read{
		{"get", func(ctx context.Context, c *client.Client) (any, error) { return c.Get(ctx, id[:20]) }},
		{"show", func(ctx context.Context, c *client.Client) (any, error) { return c.Show(ctx, id) }},
		{"why", func(ctx context.Context, c *client.Client) (any, error) { return c.Why(ctx, id) }},
		{"result", func(ctx context.Context, c *client.Client) (any, error) { return c.Result(ctx, id) }},
		{"wait", func(ctx context.Context, c *client.Client) (any, error) { return c.Wait(ctx, id) }},
		{"list", func(ctx context.Context, c *client.Client) (any, error) {
			since := time.Now().Add(-time.Hour)
			return all(c.List(ctx, operation.ListRequest{Queue: "default", State: jobs.Finished, Since: &since, Limit: 1}))
		}},
		{"events", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Events(ctx, id, 1)) }},
		{"follow", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Follow(ctx, id, 1)) }},
		{"artifacts", func(ctx context.Context, c *client.Client) (any, error) { return c.Artifacts(ctx, id, 0) }},
		{"artifact", func(ctx context.Context, c *client.Client) (any, error) {
			list, err := c.Artifacts(ctx, id, 0)
			if err != nil {
				return nil, err
			}
			return content(c.Artifact(ctx, id, list.Epoch, "notes-1.txt"))
		}},
		{"patch", func(ctx context.Context, c *client.Client) (any, error) { return content(c.Patch(ctx, id)) }},
		{"queues", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Queues().List(ctx)) }},
		{"holds", func(ctx context.Context, c *client.Client) (any, error) { return c.Queues().Holds(ctx) }},
		{"caps", func(ctx context.Context, c *client.Client) (any, error) { return c.Queues().Caps(ctx) }},
		{"budgets", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Queues().Budgets(ctx, operation.BudgetRequest{})
		}},
		{"workers", func(ctx context.Context, c *client.Client) (any, error) { return c.Workers(ctx) }},
		{"batches", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Batches().List(ctx)) }},
		{"batch", func(ctx context.Context, c *client.Client) (any, error) { return c.Batches().Get(ctx, "b") }},
		{"dead", func(ctx context.Context, c *client.Client) (any, error) {
			return all(c.DeadLetters().List(ctx, operation.DeadRequest{Kind: jobs.DeadSubmission, Older: jobs.Duration(time.Nanosecond)}))
		}},
		{"dead letter", func(ctx context.Context, c *client.Client) (any, error) { return c.DeadLetters().Get(ctx, letter, 3) }},
		{"schedules", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Schedules().List(ctx)) }},
		{"schedule", func(ctx context.Context, c *client.Client) (any, error) { return c.Schedules().Get(ctx, "nightly") }},
		{"tokens", func(ctx context.Context, c *client.Client) (any, error) { return all(c.Tokens().List(ctx)) }},
		{"audit", func(ctx context.Context, c *client.Client) (any, error) {
			return all(c.Audit(ctx, operation.AuditRequest{Operation: "submit", Limit: 1}))
		}},
	}
}

func all[T any](list func(func(T, error) bool)) ([]T, error) {
	var got []T
	for item, err := range list {
		if err != nil {
			return got, err
		}
		got = append(got, item)
	}
	return got, nil
}

func content(r io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), errors.Join(err, r.Close())
}

// A client over HTTP reads the same as one on the bus.
func TestAClientReadsTheSame(t *testing.T) {
	t.Parallel()
	p := open(t)
	bus, web, ctx := p.bus(), dial(t, p.url, jobs.RoleOperator), jobstest.Context(t)
	job := jobstest.Job()
	job.Isolation, job.Batch, job.Item = jobs.IsolationNone, "b", "1"
	if _, err := web.Submit(ctx, job); err != nil {
		t.Fatal(err)
	}
	r := p.write(jobstest.Claim(t, p.queue, "w"))
	for range 3 {
		p.say(r, "line\nof several")
	}
	p.put(r, "notes-1.txt", "kept")
	p.put(r, jobs.PatchName, "diff --git a b\n")
	p.finish(r)
	if _, err := web.Submit(ctx, job); err != nil { // a second page
		t.Fatal(err)
	}
	job.Batch, job.Item = "", ""
	if _, err := web.Schedules().Add(ctx, calendar.Schedule{Name: "nightly", Cron: "0 3 * * *", Job: job}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := web.Tokens().Add(ctx, "ci", jobs.RoleViewer, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, read := range reads(r.id, "nothing") {
		want, wantErr := read.ask(ctx, bus)
		got, err := read.ask(ctx, web)
		if !reflect.DeepEqual(got, want) || jobs.Code(err) != jobs.Code(wantErr) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s: %+v %v, want %+v %v", read.name, got, err, want, wantErr)
		}
		if err != nil && read.name != "dead letter" {
			t.Errorf("%s: %v", read.name, err)
		}
	}
}

// What is refused is the same error as on the bus, with the same words.
func TestAClientIsRefusedTheSame(t *testing.T) {
	t.Parallel()
	p := open(t)
	bus, web, ctx := p.bus(), dial(t, p.url, jobs.RoleOperator), jobstest.Context(t)
	id := p.submitted()
	if _, err := bus.Cancel(ctx, id); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(c *client.Client) error{
		"unknown job": func(c *client.Client) error { _, err := c.Get(ctx, "nothing"); return err },
		"finished":    func(c *client.Client) error { _, err := c.Cancel(ctx, id); return err },
		"invalid":     func(c *client.Client) error { _, err := c.SubmitJSON(ctx, []byte(`{"promt":"x"}`)); return err },
		"no JSON":     func(c *client.Client) error { _, err := c.SubmitJSON(ctx, []byte(`{"promt`)); return err },
		"no field":    func(c *client.Client) error { _, err := c.Fork(ctx, id, "", 1); return err },
		"no patch":    func(c *client.Client) error { _, err := content(c.Patch(ctx, id[:13])); return err },
		"message":     func(c *client.Client) error { _, err := c.Send(ctx, id, control.Message{Verb: "sing"}); return err },
		"unknown hold": func(c *client.Client) error {
			_, err := c.Queues().Pause(ctx, operation.PauseRequest{Name: "nowhere"})
			return err
		},
		"unknown token": func(c *client.Client) error { return c.Tokens().Remove(ctx, "nothing") },
		"negative":      func(c *client.Client) error { _, err := all(c.List(ctx, operation.ListRequest{Limit: -1})); return err },
		"state": func(c *client.Client) error {
			_, err := all(c.List(ctx, operation.ListRequest{State: "odd"}))
			return err
		},
	} {
		want, got := ask(bus), ask(web)
		if jobs.Code(got) != jobs.Code(want) || got != nil && got.Error() != want.Error() {
			t.Errorf("%s: %v (%s), want %v (%s)", name, got, jobs.Code(got), want, jobs.Code(want))
		}
		wanted, _ := errors.AsType[*jobs.InvalidError](want)
		told, _ := errors.AsType[*jobs.InvalidError](got)
		if (wanted == nil) != (told == nil) || wanted != nil && !slices.Equal(wanted.Fields, told.Fields) {
			t.Errorf("%s: fields %v, want %v", name, told, wanted)
		}
	}
}

// A reader behind connections that are cut again and again, and behind servers that end
// and begin, has each event once.
func TestAClientFollowsThroughCuts(t *testing.T) {
	t.Parallel()
	p := open(t)
	address, stop := p.listen("127.0.0.1:0", nil)
	proxy, err := flaky.Listen(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	c := dial(t, strings.Replace(proxy.URL(), "nats://", "http://", 1), jobs.RoleViewer)
	r := p.run()
	const n = 12
	var got []uint64
	for event, err := range c.Follow(jobstest.Context(t), r.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Seq)
		switch len(got) {
		case 2, 4:
			proxy.Cut()
			proxy.Heal()
		case 6:
			stop()
			_, stop = p.listen(strings.TrimPrefix(address, "http://"), nil)
		}
		switch {
		case len(got) < n && len(got) > 1:
			p.say(r, "more")
		case len(got) == n:
			p.finish(r)
		}
	}
	var want []uint64
	for event, err := range p.bus().Events(jobstest.Context(t), r.id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, event.Seq)
	}
	if len(got) < n || !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

// A submission whose answer is lost makes one job, and a change is not repeated.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	p := open(t)
	target, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	var lose atomic.Bool
	var asked sync.Map
	passOn := httputil.NewSingleHostReverseProxy(target)
	passOn.ModifyResponse = func(answer *http.Response) error {
		if r := answer.Request; r.Method != http.MethodGet && lose.CompareAndSwap(true, false) {
			return http.ErrAbortHandler // the server has answered
		}
		return nil
	}
	passOn.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := asked.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		passOn.ServeHTTP(w, r)
	}))
	defer front.Close()
	c, ctx := dial(t, front.URL, jobs.RoleOperator), jobstest.Context(t)
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	lose.Store(true)
	made, err := c.Submit(ctx, job)
	if err != nil || made.Duplicate {
		t.Errorf("submit: %+v, %v", made, err)
	}
	lose.Store(true)
	if forked, err := c.Fork(ctx, made.ID, "again", 1); jobs.Code(err) == jobs.CodeUnavailable {
		t.Errorf("fork: %+v, %v", forked, err)
	}
	lose.Store(false)
	if list, err := all(c.List(ctx, operation.ListRequest{})); err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("the pool has %+v, %v, want job %s", list, err, made.ID)
	}
	lose.Store(true)
	if _, err = c.Cancel(ctx, made.ID); jobs.Code(err) != jobs.CodeUnavailable {
		t.Errorf("a cancel without an answer: %v", err)
	}
	if n, ok := asked.Load("/v1/jobs/" + made.ID + "/cancel"); !ok || n.(*atomic.Int64).Load() != 1 {
		t.Errorf("the cancel was not asked for once")
	}
}

// What is no Penstock, or not reachable, or refuses the token, is told apart.
func TestServersThatAreNone(t *testing.T) {
	t.Parallel()
	p := open(t)
	answering := func(status int, kind, body string, header ...string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // the client closes early
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nothing := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	for _, c := range []struct {
		name, server, token, want string
		is                        error
	}{
		{"page", answering(200, "text/html", "<h1>Hi"), "operator", "a page for browsers", nil},
		{"other JSON", answering(200, "application/json", `{"version":1}`), "operator", "has no role", nil},
		{"other program", answering(404, "text/plain", "no\x1b[31m route\nmore"), "operator", "404 Not Found, no[31m route", nil},
		{"redirect", answering(302, "text/plain", "", "Location", "https://login.example"), "operator", "to https://login.example", nil},
		{"proxy without server", answering(502, "text/html", "<h1>Bad"), "operator", "502 Bad Gateway", jobs.ErrUnavailable},
		{"nothing", nothing, "operator", "refused", client.ErrNoDispatcher},
		{"wrong token", p.url, "wrong", "no token, or one that is not valid", client.ErrUnauthenticated},
		{"no token", p.url, "", "no token, or one that is not valid", client.ErrUnauthenticated},
		{"unknown authority", secure.URL, "operator", "unknown authority", nil},
		{"TLS without", strings.Replace(secure.URL, "https://", "http://", 1), "operator", "HTTPS server", nil},
		{"other host", "http://example.com", "operator", "write https://", nil},
		{"path", "https://localhost/penstock", "operator", "has a path", nil},
		{"user", "https://me:you@localhost", "operator", "has a user", nil},
		{"no address", "ftp://localhost", "operator", "https://host", nil},
	} {
		_, err := client.OpenHTTP(jobstest.Context(t), client.HTTPConfig{Server: c.server, Token: c.token})
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		_, foreign := errors.AsType[*client.ForeignServerError](err)
		if wanted := slices.Contains([]string{"page", "other JSON", "other program", "redirect", "TLS without"}, c.name); foreign != wanted {
			t.Errorf("%s: %T", c.name, err)
		}
	}
}

// A server that bounds how often it is asked is asked less often, and nothing fails.
func TestAClientThatAsksTooOften(t *testing.T) {
	t.Parallel()
	p := open(t)
	cfg := p.config()
	cfg.Rate = 2
	c, ctx := dial(t, p.serve(cfg), jobs.RoleOperator), jobstest.Context(t)
	id := p.submitted()
	for i := range 6 {
		if _, err := c.Get(ctx, id); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if _, err := c.Cancel(ctx, id); err != nil {
		t.Error(err)
	}
	if _, err := content(c.Patch(ctx, id)); err != nil {
		t.Error(err)
	}
}
