package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is a dispatcher on a real broker, and its parts.
type pool struct {
	t     *testing.T
	nc    *nats.Conn
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
	url   string // of an HTTP server
	hooks httpapi.Hooks
}

// open makes a pool with an HTTP server until the test ends. Nothing leads it.
func open(t *testing.T) *pool {
	t.Helper()
	p := dispatch(t, jobstest.Start(t).Connect(), "")
	p.url = p.serve(p.config())
	return p
}

// dispatch makes a pool on a broker.
func dispatch(t *testing.T, nc *nats.Conn, role jobs.Role) *pool {
	t.Helper()
	p := &pool{t: t, nc: nc, queue: jobstest.Queue(t, nc, queue.Config{Role: role}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc)}
	d := dispatcher.New(dispatcher.Config{Queue: p.queue, Log: p.log, Store: p.store})
	hooks := jobstest.Webhooks(t, nc)
	server := api.New(api.Config{
		Dispatcher: d, Queue: p.queue, Log: p.log, Store: p.store, Tokens: jobstest.Tokens(t, nc), Audit: jobstest.Audit(t, nc),
		Webhooks: hooks, Deliverer: deliver.New(deliver.Config{Store: hooks, Sender: deliver.NewSender(nil)}),
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return p
}

// identities are the tokens of the tests: each role's name is its token.
func identities(r *http.Request) (httpapi.Identity, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "roleless" {
		return httpapi.Identity{Name: "roleless"}, nil
	}
	role := jobs.Role(token)
	if !slices.Contains(append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...), role) {
		return httpapi.Identity{}, httpapi.ErrUnauthenticated
	}
	return httpapi.Identity{Name: "token-" + token, Role: role}, nil
}

func (p *pool) config() httpapi.Config {
	p.t.Helper()
	c, err := client.Open(jobstest.Context(p.t), p.nc, client.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	return httpapi.Config{Client: c, Authenticate: identities, Version: "v9", Hooks: p.hooks}
}

// serve runs an HTTP server until the test ends, and returns its address.
func (p *pool) serve(cfg httpapi.Config) string {
	p.t.Helper()
	server := httptest.NewServer(httpapi.New(cfg).Handler())
	p.t.Cleanup(server.Close)
	return server.URL
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem reads an answer that is one.
func (a answer) problem(t *testing.T) httpapi.Problem {
	t.Helper()
	var p httpapi.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d %s %s: no problem: %v", a.status, a.header.Get("Content-Type"), a.body, err)
	}
	if p.Status != a.status || p.RequestID != a.header.Get("X-Request-Id") || !strings.HasSuffix(p.Type, "#"+string(p.Code)) || p.Title == "" || p.Detail == "" {
		t.Errorf("%d: the problem is %+v", a.status, p)
	}
	return p
}

// ask makes a request as a role: "POST /v1/jobs". Headers are pairs.
func (p *pool) ask(role jobs.Role, request, body string, headers ...string) answer {
	p.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(jobstest.Context(p.t), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if role != "" {
		r.Header.Set("Authorization", "Bearer "+string(role))
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(got)}
}

// want reads an answer with a status.
func want[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var v T
	if a.status != status {
		t.Fatalf("got %d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// plain is a job with changes, as JSON.
func plain(t *testing.T, changes ...func(*jobs.Job)) string {
	t.Helper()
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	for _, change := range changes {
		change(&job)
	}
	body, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// submitted is the id of a new job.
func (p *pool) submitted() string {
	p.t.Helper()
	return want[httpapi.Submitted](p.t, p.ask(jobs.RoleSubmitter, "POST /v1/jobs", plain(p.t)), http.StatusCreated).ID
}
