package dashboard_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/dashboard/poolpages"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is a dispatcher on a real broker with a dashboard.
type pool struct {
	t      *testing.T
	nc     *nats.Conn
	queue  *queue.Queue
	hooks  *webhook.Store
	store  *artifact.Store
	client *client.Client
	url    string
}

// open makes a pool whose HTTP server has pages, until the test ends. Nothing leads it.
func open(t *testing.T, changes ...func(*dashboard.Config)) *pool {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	p := &pool{t: t, nc: nc, queue: jobstest.Queue(t, nc, queue.Config{}), hooks: jobstest.Webhooks(t, nc), store: jobstest.Store(t, nc)}
	log, store := jobstest.Log(t, nc), p.store
	d := dispatcher.New(dispatcher.Config{Queue: p.queue, Log: log, Store: store})
	hooks := jobstest.Webhooks(t, nc)
	server := api.New(api.Config{
		Dispatcher: d, Queue: p.queue, Log: log, Store: store, Tokens: jobstest.Tokens(t, nc), Audit: jobstest.Audit(t, nc),
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
	var err error
	p.client, err = client.Open(jobstest.Context(t), nc, client.Config{})
	must(t, err)
	cfg := dashboard.Config{Client: p.client, Authenticate: identities, Version: "v9", Sections: []dashboard.Section{poolpages.Section()}}
	for _, change := range changes {
		change(&cfg)
	}
	told, err := feed.New(nc, feed.Config{})
	must(t, err)
	web := httptest.NewServer(httpapi.New(httpapi.Config{Changes: told.Follow, Client: p.client, Authenticate: identities, Pages: dashboard.New(cfg).Serve, Version: "v9"}).Handler())
	t.Cleanup(func() {
		web.CloseClientConnections() // a browser may have left a stream
		web.Close()
	})
	p.url = web.URL
	return p
}

// identities are the tokens of the tests: each role's name is its token.
func identities(r *http.Request) (httpapi.Identity, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	role := jobs.Role(token)
	if !slices.Contains(append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...), role) {
		return httpapi.Identity{}, httpapi.ErrUnauthenticated
	}
	return httpapi.Identity{Name: "token-" + token, Role: role}, nil
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask makes a request with a cookie: "POST /ui/logout". It does not follow redirects.
// Headers are pairs.
func (p *pool) ask(cookie, request string, form url.Values, headers ...string) answer {
	p.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(jobstest.Context(p.t), method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: "penstock", Value: cookie})
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

// page is a page that must be there.
func (p *pool) page(cookie, path string) string {
	p.t.Helper()
	got := p.ask(cookie, "GET "+path, nil)
	if got.status != http.StatusOK {
		p.t.Fatalf("%s as %s: %d %s", path, cookie, got.status, got.body)
	}
	return got.body
}
