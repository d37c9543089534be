package attach_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/attach"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is a dispatcher on a real broker, with a job and an HTTP server.
type pool struct {
	*testing.T
	client *client.Client
	log    *session.Log
	rec    jobs.Record
	url    string
	stop   context.CancelFunc // ends the terminals
	ended  chan error         // that they have
	ways   sync.WaitGroup     // requests for terminals that are being answered

	mu      sync.Mutex
	entries []operation.AuditEntry
	gone    bool // the token is
}

// open makes a pool with a job that runs, as far as a test plays its worker.
func open(t *testing.T, cfg attach.Config) *pool {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	q, store, hooks := jobstest.Queue(t, nc, queue.Config{}), jobstest.Store(t, nc), jobstest.Webhooks(t, nc)
	p := &pool{T: t, log: jobstest.Log(t, nc), ended: make(chan error, 1)}
	p.rec = jobstest.Submit(t, q, jobstest.Job())
	server := api.New(api.Config{
		Dispatcher: dispatcher.New(dispatcher.Config{Queue: q, Log: p.log, Store: store}), Queue: q, Log: p.log, Store: store, Tokens: jobstest.Tokens(t, nc),
		Audit: jobstest.Audit(t, nc), Webhooks: hooks, Deliverer: deliver.New(deliver.Config{Store: hooks, Sender: deliver.NewSender(nil)}),
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
	if p.client, err = client.Open(jobstest.Context(t), nc, client.Config{}); err != nil {
		t.Fatal(err)
	}
	cfg.Client, cfg.Attached = p.client, p.keep
	terminals := attach.New(cfg)
	serving, end := context.WithCancel(context.Background())
	p.stop = end
	go func() { p.ended <- terminals.Run(serving) }()
	over := func(w http.ResponseWriter, r *http.Request, who httpapi.Identity, again func() error) error {
		p.ways.Add(1)
		defer p.ways.Done()
		return terminals.Serve(w, r, who, again)
	}
	web := httptest.NewServer(httpapi.New(httpapi.Config{Client: p.client, Authenticate: p.identify, Attach: over}).Handler())
	t.Cleanup(func() {
		end()
		if err := <-p.ended; err != nil {
			t.Errorf("run: %v", err)
		}
		web.Close()
	})
	p.url = web.URL
	return p
}

func (p *pool) keep(_ context.Context, e operation.AuditEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = append(p.entries, e)
}

// identify takes the name of a role for a token.
func (p *pool) identify(r *http.Request) (httpapi.Identity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	role := jobs.Role(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if p.gone || !slices.Contains(append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...), role) {
		return httpapi.Identity{}, httpapi.ErrUnauthenticated
	}
	return httpapi.Identity{Name: "token-" + string(role), Role: role}, nil
}

// plays plays the job's worker.
func (p *pool) plays(take func(context.Context, terminal.Request) terminal.Answer) {
	p.Helper()
	stop, err := p.log.ServeTerminals(p.rec.Session, func(ctx context.Context, r terminal.Request) (terminal.Answer, bool) {
		return take(ctx, r), true
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(stop)
}

func (p *pool) path() string { return "/v1/jobs/" + p.rec.ID + "/attach" }

// shake asks for a WebSocket, and returns the status of the answer, if there is one.
// Headers are pairs.
func (p *pool) shake(headers ...string) (socket *websocket.Conn, status int, err error) {
	p.Helper()
	h, host := http.Header{"Authorization": {"Bearer operator"}}, ""
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			host = headers[i+1]
		}
		if headers[i+1] == "" {
			h.Del(headers[i])
		}
	}
	path := p.path()
	if other := h.Get("Path"); other != "" {
		path = other
	}
	transport := &http.Transport{DisableKeepAlives: true}
	socket, res, err := websocket.Dial(jobstest.Context(p), p.url+path, &websocket.DialOptions{HTTPHeader: h, Host: host, HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // Dial has closed or taken it
	if err == nil {
		socket.SetReadLimit(1 << 20)
		p.Cleanup(func() { _ = socket.CloseNow() })
	}
	if res != nil {
		status = res.StatusCode
	}
	return socket, status, err
}

func (p *pool) socket() *websocket.Conn {
	p.Helper()
	socket, _, err := p.shake()
	if err != nil {
		p.Fatal(err)
	}
	return socket
}

func (p *pool) says(socket *websocket.Conn, kind websocket.MessageType, text string) {
	p.Helper()
	if err := socket.Write(jobstest.Context(p), kind, []byte(text)); err != nil {
		p.Error(err)
	}
}

// hears returns the next message, or the end of the connection.
func (p *pool) hears(socket *websocket.Conn) (string, websocket.CloseError) {
	p.Helper()
	_, data, err := socket.Read(jobstest.Context(p))
	end, told := errors.AsType[websocket.CloseError](err)
	if err != nil && !told {
		p.Fatalf("the connection ended without a reason: %v", err)
	}
	return string(data), end
}

// web is a client over HTTP.
func (p *pool) web() *client.Terminals {
	p.Helper()
	c, err := client.OpenHTTP(jobstest.Context(p), client.HTTPConfig{Server: p.url, Token: "operator", By: "test"})
	if err != nil {
		p.Fatal(err)
	}
	terminals := c.Terminals(p.rec)
	p.Cleanup(func() { terminals.Close(); c.Close() })
	return terminals
}

// A client over HTTP asks and is answered as one on the bus is. The worker hears the name
// of the identity, whatever the client calls itself.
func TestAskedOverHTTPAsOnTheBus(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	var by []string
	p.plays(func(_ context.Context, r terminal.Request) terminal.Answer {
		p.mu.Lock()
		defer p.mu.Unlock()
		by = append(by, r.By)
		switch r.Verb {
		case terminal.Close:
			return terminal.Answer{Error: control.Refuse(control.Busy, "not now")}
		case terminal.Read:
			return terminal.Answer{From: r.From, Data: []byte{0, 0x1b, 0xff, '<'}, Exit: &terminal.Exit{Code: 7, Why: "x"}}
		}
		return terminal.Answer{Attempt: 3, From: int64(len(r.Data)), Terminals: []terminal.Info{{Terminal: r.Terminal, Args: r.Args, Rows: r.Rows, Columns: r.Columns}}}
	})
	bus, web, id := p.client.Terminals(p.rec), p.web(), jobs.NewID()
	for _, r := range []terminal.Request{
		{Verb: terminal.Open, ID: id, By: "me", Args: []string{"sh", "-c", "\u00e9\n"}, Rows: 24, Columns: 80}, {Verb: terminal.List},
		{Verb: terminal.Write, ID: id, Attempt: 3, Terminal: 1, Data: []byte(strings.Repeat("\x00", terminal.MaxInput))},
		{Verb: terminal.Read, ID: id, Attempt: 3, Terminal: 1, From: 5}, {Verb: terminal.Resize, Attempt: 3, Terminal: 1, Rows: 1, Columns: 2}, {Verb: terminal.Close, Attempt: 3, Terminal: 1},
		{Verb: "wrong"}, {Verb: terminal.Write, ID: id, Attempt: 3, Terminal: 1, Data: make([]byte, terminal.MaxInput+1)},
	} {
		want, wantErr := bus.Ask(jobstest.Context(t), r)
		got, err := web.Ask(jobstest.Context(t), r)
		if same(t, got) != same(t, want) || (err == nil) != (wantErr == nil) || err != nil && (err.Error() != wantErr.Error() || jobs.Code(err) != jobs.Code(wantErr)) {
			t.Errorf("%s: %s, %v; want %s, %v", r.Verb, same(t, got), err, same(t, want), wantErr)
		}
	}
	if by[0] != "me" || by[1] != "token-operator" {
		t.Errorf("the worker heard of %q", by)
	}
	want := operation.AuditEntry{Operation: "attach", About: p.rec.ID, Who: "token-operator", Role: jobs.RoleOperator, Via: "http", Outcome: "ok"}
	if len(p.entries) != 1 || p.entries[0] != want {
		t.Errorf("the audit log has %+v", p.entries)
	}
}

// That no worker has the session may pass; that the job has ended does not.
func TestNoWorker(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	web, list := p.web(), terminal.Request{Verb: terminal.List}
	if _, err := web.Ask(jobstest.Context(t), list); !errors.Is(err, session.ErrNobody) {
		t.Errorf("without a worker: %v", err)
	}
	if _, err := p.client.Cancel(jobstest.Context(t), p.rec.ID); err != nil {
		t.Fatal(err)
	}
	for _, way := range []*client.Terminals{web, p.web()} { // that is open, and one that opens then
		_, err := way.Ask(jobstest.Context(t), list)
		if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Finished || !strings.Contains(err.Error(), p.rec.ID) {
			t.Errorf("behind the end: %v", err)
		}
	}
}

// Only an operator attaches, from a page of this server or from no page at all.
func TestWhoMayAttach(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	host := strings.TrimPrefix(p.url, "http://")
	for _, tt := range []struct {
		status  int
		headers []string
	}{
		{101, nil}, {101, []string{"Origin", p.url}}, {101, []string{"Origin", p.url, "Sec-Fetch-Site", "same-origin"}},
		{101, []string{"Authorization", "", "Cookie", "penstock=operator", "Origin", p.url}},
		{403, []string{"Authorization", "", "Cookie", "penstock=operator", "Origin", "https://evil.example"}},
		{403, []string{"Origin", "https://evil.example"}}, {403, []string{"Origin", "null"}}, {403, []string{"Sec-Fetch-Site", "cross-site"}}, {403, []string{"Sec-Fetch-Site", "same-site", "Origin", p.url}},
		{403, []string{"Origin", "http://localhost:1"}},
		{421, []string{"Host", "evil.example", "Origin", "http://evil.example"}},
		{403, []string{"Authorization", "Bearer viewer"}}, {403, []string{"Authorization", "Bearer submitter"}}, {403, []string{"Authorization", "Bearer worker"}}, {403, []string{"Authorization", "Bearer autoscale"}},
		{401, []string{"Authorization", ""}}, {401, []string{"Authorization", "Bearer x"}},
		{404, []string{"Path", "/v1/jobs/nothing/attach"}}, {400, []string{"Path", p.path() + "?terminal=1"}},
	} {
		_, status, err := p.shake(tt.headers...)
		if status != tt.status || (err == nil) != (tt.status == 101) {
			t.Errorf("%q on %s: %v, want %d", tt.headers, host, err, tt.status)
		}
	}
	r, err := http.NewRequestWithContext(jobstest.Context(t), http.MethodGet, p.url+p.path(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer operator")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("a request that is none for a WebSocket: %d, %v", res.StatusCode, err)
	}
}

// A message that is no call ends the connection, with the reason; one whose request is
// not valid is refused by itself.
func TestMessagesThatAreNoCalls(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	for _, tt := range []struct {
		kind websocket.MessageType
		text string
		code websocket.StatusCode
	}{
		{websocket.MessageText, "{", websocket.StatusUnsupportedData}, {websocket.MessageText, "[]", websocket.StatusUnsupportedData}, {websocket.MessageText, `{"request":{"verb":"list"}}`, websocket.StatusUnsupportedData},
		{websocket.MessageBinary, `{"number":1,"request":{"verb":"list"}}`, websocket.StatusUnsupportedData},
		{websocket.MessageText, strings.Repeat(" ", terminal.MaxCall+1), websocket.StatusMessageTooBig},
	} {
		socket := p.socket()
		p.says(socket, tt.kind, tt.text)
		if text, end := p.hears(socket); end.Code != tt.code {
			t.Errorf("%.50q: %q, ended with %+v, want %v", tt.text, text, end, tt.code)
		}
	}
	socket := p.socket()
	for _, text := range []string{`{"number":4,"request":{"verb":"look"}}`, `{"number":4,"request":{"verb":"list","more":1}}`, `{"number":4,"request":{"verb":"list"},"more":1}`, `{"number":4}`} {
		p.says(socket, websocket.MessageText, text)
		if got, end := p.hears(socket); !strings.HasPrefix(got, `{"number":4,"answer":{"error":{"code":"invalid"`) {
			t.Errorf("%s: %s, %+v", text, got, end)
		}
	}
}
