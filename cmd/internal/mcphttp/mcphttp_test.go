package mcphttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/mcphttp"
	"github.com/penstock-run/penstock/cmd/internal/mcptools"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// start serves models until the test ends, and returns the address. Each token is the name
// of a role, with a word behind it.
func start(t *testing.T, cfg mcphttp.Config) string {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	jobstest.Log(t, nc)
	jobstest.Store(t, nc)
	var err error
	if cfg.Client, err = client.Open(jobstest.Context(t), nc, client.Config{}); err != nil {
		t.Fatal(err)
	}
	cfg.Allow = mcptools.Allowances
	h := mcphttp.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	server := httptest.NewServer(httpapi.New(httpapi.Config{Client: cfg.Client, Models: h.Serve, Authenticate: func(r *http.Request) (httpapi.Identity, error) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		role, _, ok := strings.Cut(token, "-")
		if !ok {
			return httpapi.Identity{}, httpapi.ErrUnauthenticated
		}
		return httpapi.Identity{Name: token, Role: jobs.Role(role)}, nil
	}}).Handler())
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server.URL + "/mcp"
}

// A bearer sends requests with a token.
type bearer struct {
	token string
	http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// connect opens a session of the official client.
func connect(t *testing.T, address, token string) (*mcp.ClientSession, error) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(jobstest.Context(t), &mcp.StreamableClientTransport{
		Endpoint: address, HTTPClient: &http.Client{Transport: bearer{token, transport}}, MaxRetries: -1,
	}, nil)
	if err == nil {
		t.Cleanup(func() { _ = session.Close() }) // also one that the server has ended
	}
	return session, err
}

// connectSoon is connect for a place that may become free a moment later: the client asks
// first whether the server needs a session, which takes one for that long.
func connectSoon(t *testing.T, address, token string) *mcp.ClientSession {
	t.Helper()
	for end := time.Now().Add(jobstest.Patience); ; time.Sleep(20 * time.Millisecond) {
		session, err := connect(t, address, token)
		if err == nil {
			return session
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// post sends a request in a session that another one may have opened.
func post(t *testing.T, address, token, session, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(jobstest.Context(t), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", session)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return res.StatusCode
}

const ping = `{"jsonrpc":"2.0","id":9,"method":"ping"}`

// The role of a token decides which tools there are.
func TestToolsOfRoles(t *testing.T) {
	t.Parallel()
	address := start(t, mcphttp.Config{})
	for role, want := range map[string]string{
		"viewer":    "get_batch get_job get_job_diff get_job_log list_jobs list_queues wait_job",
		"submitter": "answer cancel_job get_job get_job_diff get_job_log retry_job submit_batch submit_job wait_job",
		"operator":  "answer cancel_job get_batch get_job get_job_diff get_job_log list_jobs list_queues retry_job submit_batch submit_job wait_job",
		"autoscale": "list_queues",
	} {
		session, err := connect(t, address, role+"-1")
		if err != nil {
			t.Fatal(err)
		}
		list, err := session.ListTools(jobstest.Context(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has the tools %s, want %s", role, got, want)
		}
	}
	for _, token := range []string{"", "viewer"} {
		if _, err := connect(t, address, token); err == nil {
			t.Errorf("a session was opened with token %q", token)
		}
	}
}

// A session is that of the identity that opened it, also if another one has its id.
func TestASessionHasAnOwner(t *testing.T) {
	t.Parallel()
	address := start(t, mcphttp.Config{})
	session, err := connect(t, address, "operator-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := post(t, address, "operator-1", session.ID(), ping); got != http.StatusOK {
		t.Errorf("its owner gets %d", got)
	}
	for _, other := range []string{"operator-2", "viewer-1"} {
		if got := post(t, address, other, session.ID(), ping); got != http.StatusNotFound {
			t.Errorf("%s gets %d from the session of another one", other, got)
		}
	}
	if got := post(t, address, "operator-1", session.ID(), `{"pad":"`+strings.Repeat("x", 2<<20)+`"}`); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body gets %d", got)
	}
	if got := post(t, address, "", session.ID(), ping); got != http.StatusUnauthorized {
		t.Errorf("no token gets %d", got)
	}
}

// An identity has so many sessions, which costs no other one anything.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	address := start(t, mcphttp.Config{Sessions: 2})
	var first *mcp.ClientSession
	for range 2 {
		first = connectSoon(t, address, "viewer-1")
	}
	if got := post(t, address, "viewer-1", "", ping); got != http.StatusServiceUnavailable {
		t.Errorf("a third session gets %d", got)
	}
	if _, err := connect(t, address, "viewer-2"); err != nil {
		t.Errorf("another identity: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	connectSoon(t, address, "viewer-1") // where the closed one was
}

// A session that is idle ends, and makes room.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	address := start(t, mcphttp.Config{Sessions: 1, Idle: time.Second})
	session := connectSoon(t, address, "viewer-1")
	connectSoon(t, address, "viewer-1") // where the idle one has made room
	if got := post(t, address, "viewer-1", session.ID(), ping); got != http.StatusNotFound {
		t.Errorf("an idle session gets %d", got)
	}
}
