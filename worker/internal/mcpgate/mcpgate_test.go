package mcpgate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/mcpgate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "very-secret-token"

// A rig is an agent's way to one server, as an attempt has it: the client of the jail, the
// worker's listener, the gate, the network.
type rig struct {
	*testing.T

	client *inside.Client

	mu      sync.Mutex
	seen    []*http.Request // by the server; guarded by mu
	bodies  []string        // guarded by mu
	refused []string        // guarded by mu
}

func newRig(t *testing.T, config jobs.MCPServer, answer http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{T: t}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.seen, r.bodies = append(r.seen, req), append(r.bodies, string(body))
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(web.Close)
	if config.URL == "" {
		config.URL = web.URL + "/mcp?team=web"
	}
	network, err := gate.NewNetwork(gate.NetworkConfig{
		Hosts: []string{config.Host()},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := mcpgate.New(mcpgate.Config{
		Servers: map[string]jobs.MCPServer{"far": config, "near": {Command: "sh"}},
		Secret:  func(name string) string { return map[string]string{"TOKEN": secret}[name] },
		Connect: network.Connect,
		Refused: func(server, why string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refused = append(r.refused, server+": "+why)
		},
	})
	t.Cleanup(g.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := inside.NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, inside.Handlers{MCP: g}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if r.client, err = inside.NewClient(server.URL(l.Addr().String())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	return r
}

// send sends a message and returns the answer.
func (r *rig) send(method, body string, header http.Header) (int, http.Header, string) {
	r.Helper()
	var content []byte
	if body != "" {
		content = []byte(body)
	}
	res, err := r.client.MCP(r.Context(), "far", method, header, content)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		data = append(data, err.Error()...)
	}
	return res.StatusCode, res.Header, string(data)
}

func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
}

// The server gets the job's headers with the worker's secrets, and of the agent's request nothing
// but the message and the headers of the protocol. The agent gets no secret back.
func TestWhatPasses(t *testing.T) {
	t.Parallel()
	r := newRig(t, jobs.MCPServer{Headers: map[string]string{"Authorization": "Bearer ${TOKEN}", "X-Team": "web"}}, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Mcp-Session-Id", "s1")
		w.Header().Set("Mcp-Protocol-Version", req.Header.Get("Authorization"))
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Www-Authenticate", "Bearer")
		fmt.Fprintf(w, "data: %s\n\n", req.Header["Authorization"])
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "data: ", secret[:5])
		w.(http.Flusher).Flush()
		fmt.Fprint(w, secret[5:], "\n\n")
	})
	given := http.Header{
		"Accept": {"text/event-stream"}, "Mcp-Session-Id": {"s0"}, "Mcp-Protocol-Version": {"2025-06-18"}, "Last-Event-Id": {"e"},
		"Authorization": {"Bearer agent"}, "Cookie": {"c"}, "X-Team": {"agent"}, "X-Forwarded-For": {"192.0.2.1"}, "Mcp-Name": {"delete"}, "Mcp-Method": {"x"},
	}
	given.Del("Authorization") // the client has the worker's own
	status, header, body := r.send("POST", `{"id":12345678901234567890, "jsonrpc":"2.0","method":"tools/call","params":{"name":"a<b>é","arguments":{"x":"&"}}}`, given)
	if status != 200 || strings.Contains(body, secret) || strings.Count(body, strings.Repeat("*", len(secret))) != 2 {
		t.Errorf("got %d %q", status, body)
	}
	if header.Get("Mcp-Session-Id") != "s1" || header.Get("Mcp-Protocol-Version") != "" || header.Get("Set-Cookie") != "" || header.Get("Www-Authenticate") != "" {
		t.Errorf("the agent gets %v", header)
	}
	req := r.seen[0]
	if req.URL.String() != "/mcp?team=web" || req.Header.Get("Authorization") != "Bearer "+secret || req.Header.Get("X-Team") != "web" ||
		req.Header.Get("Mcp-Session-Id") != "s0" || req.Header.Get("Mcp-Protocol-Version") != "2025-06-18" || req.Header.Get("Last-Event-Id") != "e" {
		t.Errorf("the server gets %s %v", req.URL, req.Header)
	}
	if req.Header.Get("Cookie") != "" || req.Header.Get("X-Forwarded-For") != "" || req.Header.Get("Mcp-Method") != "tools/call" || req.Header.Get("Mcp-Name") != "=?base64?YTxiPsOp?=" {
		t.Errorf("the server gets %v", req.Header)
	}
	if want := `{"id":12345678901234567890,"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"x":"&"},"name":"a<b>é"}}`; r.bodies[0] != want {
		t.Errorf("the server gets %s, want %s", r.bodies[0], want)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if status, _, _ := r.send(method, "", http.Header{}); status != 200 || r.seen[len(r.seen)-1].Method != method {
			t.Errorf("%s: %d", method, status)
		}
	}
}

// Only listed tools are called, however the call is written.
func TestTools(t *testing.T) {
	t.Parallel()
	call := func(tool string) string {
		return `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"` + tool + `"}}`
	}
	for name, tt := range map[string]struct {
		message string
		status  int
		passes  bool
		refused bool
	}{
		"listed":                        {call("read"), 200, true, false},
		"by its beginning":              {call("search_all"), 200, true, false},
		"another method":                {`{"id":1,"method":"tools/list"}`, 200, true, false},
		"an answer":                     {`{"id":1,"result":{"name":"delete"}}`, 200, true, false},
		"another tool":                  {call("delete"), 200, false, true},
		"escaped":                       {call(`\u0064elete`), 200, false, true},
		"another case":                  {call("READ"), 200, false, true},
		"no name":                       {`{"id":1,"method":"tools/call","params":{}}`, 200, false, true},
		"no parameters":                 {`{"id":1,"method":"tools/call"}`, 200, false, true},
		"parameters as a list":          {`{"id":1,"method":"tools/call","params":["delete"]}`, 200, false, true},
		"a name that is none":           {`{"id":1,"method":"tools/call","params":{"name":["delete"]}}`, 200, false, true},
		"a notification":                {`{"method":"tools/call","params":{"name":"delete"}}`, 403, false, true},
		"in a batch":                    {`[` + call("read") + `,` + call("delete") + `]`, 403, false, true},
		"the last of two":               {`{"id":1,"method":"tools/call","params":{"name":"read","name":"delete"}}`, 200, false, true},
		"the first of two":              {`{"id":1,"method":"tools/call","params":{"name":"delete","name":"read"}}`, 200, true, false}, // the server gets one
		"two methods":                   {`{"id":1,"method":"tools/list","method":"tools/call","params":{"name":"delete"}}`, 200, false, true},
		"a method's case":               {`{"id":1,"method":"tools/list","Method":"tools/call","params":{"name":"delete"}}`, 400, false, false},
		"a name's case":                 {`{"id":1,"method":"tools/call","params":{"name":"read","Name":"delete"}}`, 400, false, false},
		"a letter that folds":           {`{"id":1,"method":"tools/call","params":{"name":"read"},"param\u017f":{"name":"delete"}}`, 400, false, false},
		"a method that is none":         {`{"id":1,"method":["tools/call"],"params":{"name":"delete"}}`, 400, false, false},
		"two messages":                  {call("read") + call("delete"), 400, false, false},
		"a message in a list in a list": {`[[` + call("delete") + `]]`, 400, false, false},
		"nothing":                       {`[]`, 400, false, false},
		"not JSON":                      {`{"id":`, 400, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, jobs.MCPServer{Tools: []string{"read", "search_*"}}, ok)
			status, _, body := r.send("POST", tt.message, http.Header{})
			if status != tt.status || (len(r.seen) == 1) != tt.passes || (len(r.refused) == 1) != tt.refused {
				t.Errorf("got %d %s; the server got %q; refused %q", status, body, r.bodies, r.refused)
			}
			if tt.passes && strings.Contains(r.bodies[0], "delete") && name != "an answer" {
				t.Errorf("the server gets %s", r.bodies[0])
			}
			var answer struct {
				Error struct {
					Code    int
					Message string
				}
			}
			if tt.refused && status == 200 && (json.Unmarshal([]byte(body), &answer) != nil || answer.Error.Code != -32602 || !strings.Contains(answer.Error.Message, "read, search_*")) {
				t.Errorf("the agent gets %s", body)
			}
		})
	}
}

// What a server must not do, and what an agent must not.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config       jobs.MCPServer
		answer       http.HandlerFunc
		method, body string
		status       int
		want         string
	}{
		"a redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		}, status: 502, want: "elsewhere (307)"},
		"a packed answer": {answer: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip") }, status: 502, want: "compressed"},
		"a cut answer": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		}, status: 200, want: "EOF"},
		"no connection":     {config: jobs.MCPServer{URL: "http://127.0.0.1:1/"}, answer: ok, status: 502, want: "127.0.0.1:1 does not answer"},
		"a private network": {config: jobs.MCPServer{URL: "http://inner.test/"}, answer: ok, status: 502, want: "private network"},
		"another method":    {answer: ok, method: "PUT", status: 400, want: "method"},
		"a large message":   {answer: ok, body: `{"id":1,"method":"` + strings.Repeat("a", mcpgate.MaxMessage) + `"}`, status: 400, want: "more than 1048576 bytes"},
		"its own error":     {answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not you", http.StatusForbidden) }, status: 403, want: "not you"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.config, tt.answer)
			if tt.method == "" {
				tt.method = "POST"
			}
			if tt.body == "" {
				tt.body = `{"id":1,"method":"ping"}`
			}
			status, _, body := r.send(tt.method, tt.body, http.Header{})
			if status != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("got %d %q, want %d and %q", status, body, tt.status, tt.want)
			}
		})
	}
	r := newRig(t, jobs.MCPServer{}, ok)
	for _, name := range []string{"near", "gone", "..", "far/x"} {
		res, err := r.client.MCP(t.Context(), name, "POST", http.Header{}, []byte(`{"id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK || len(r.seen) > 0 {
			t.Errorf("%s: got %d", name, res.StatusCode)
		}
	}
}

// A server that is silent for longer than a request's bytes may take is waited for. The agent that
// hangs up ends the request there, too.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	gone := make(chan bool)
	r := newRig(t, jobs.MCPServer{}, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Last-Event-Id") != "" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			close(gone)
			return
		}
		time.Sleep(11 * time.Second) // more than the worker's limit for the bytes of a request
		ok(w, req)
	})
	var all sync.WaitGroup
	for method, body := range map[string]string{"POST": `{"id":1,"method":"ping"}`, "GET": "", "DELETE": ""} {
		all.Go(func() {
			if status, _, said := r.send(method, body, http.Header{}); status != 200 {
				t.Errorf("%s: got %d %s", method, status, said)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	res, err := r.client.MCP(ctx, "far", "GET", http.Header{"Last-Event-Id": {"e"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	<-gone
}
