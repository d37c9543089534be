package mcpbridge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/mcpbridge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text struct {
	Text string `json:"text"`
}

// newServer is a real server with a tool that repeats its text.
func newServer(t *testing.T, name string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	t.Cleanup(func() {
		for session := range server.Sessions() { // that no client has ended
			_ = session.Close()
		}
	})
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(ctx context.Context, r *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		if in.Text == "progress" {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " " + in.Text}}}, nil, nil
	})
	return server
}

// to sends the bridge's requests to a server by HTTP.
func to(url string) mcpbridge.Request {
	return func(ctx context.Context, method string, header http.Header, body []byte) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header = header
		return http.DefaultTransport.RoundTrip(req)
	}
}

// connect connects the SDK's client, as an agent has one, over the bridge.
func connect(t *testing.T, url string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- mcpbridge.Run(t.Context(), "far", to(url), fromClient, toClient)
		toClient.Close()
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, options).Connect(t.Context(), &mcp.IOTransport{Reader: fromBridge, Writer: toBridge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		toBridge.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return session
}

func call(t *testing.T, session *mcp.ClientSession, said string) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": said}}
	params.SetProgressToken("p")
	res, err := session.CallTool(t.Context(), params)
	if err != nil {
		return err.Error()
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// A real client reaches a real server in each of the forms in which servers answer, with a
// session and without.
func TestRealServer(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*mcp.StreamableHTTPOptions{
		"streams": {}, "json": {JSONResponse: true}, "stateless": {Stateless: true}, "stateless json": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t, "one")
			var deleted atomic.Int32
			handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					deleted.Add(1)
				}
				handler.ServeHTTP(w, r)
			}))
			defer web.Close()
			changed, progress := make(chan bool, 1), make(chan bool, 1)
			t.Run("session", func(t *testing.T) {
				session := connect(t, web.URL, &mcp.ClientOptions{
					ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- true },
					ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress <- true },
				})
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						if got, want := call(t, session, fmt.Sprint(i)), fmt.Sprint("one ", i); got != want {
							t.Errorf("got %q, want %q", got, want)
						}
					})
				}
				all.Wait()
				if strings.Contains(name, "json") || strings.Contains(name, "stateless") {
					return // such a server has no stream of its own
				}
				call(t, session, "progress")
				<-progress // came over the stream of the call
				mcp.AddTool(server, &mcp.Tool{Name: "another"}, func(context.Context, *mcp.CallToolRequest, text) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				})
				<-changed // came without being asked for
			})
			if stateless := strings.Contains(name, "stateless"); (deleted.Load() == 0) != stateless {
				t.Errorf("the server was told of the end of %d sessions", deleted.Load())
			}
		})
	}
}

// A server that is started anew has forgotten its sessions. The client does not notice.
func TestServerThatForgets(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[mcp.StreamableHTTPHandler]
	start := func(name string) {
		server := newServer(t, name)
		current.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	}
	start("first")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // a stream would hold the first handler
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		current.Load().ServeHTTP(w, r)
	}))
	defer web.Close()
	session := connect(t, web.URL, nil)
	if got := call(t, session, "a"); got != "first a" {
		t.Fatal(got)
	}
	start("second")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := call(t, session, "b"); got != "second b" {
				t.Error(got)
			}
		})
	}
	all.Wait()
}

// run sends lines to a server that answers by hand, and returns what the client reads.
func run(t *testing.T, answer http.HandlerFunc, lines ...string) []string {
	t.Helper()
	web := httptest.NewServer(answer)
	defer web.Close()
	var out bytes.Buffer
	if err := mcpbridge.Run(t.Context(), "far", to(web.URL), strings.NewReader(strings.Join(lines, "\n")+"\n"), &out); err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	var got []string
	for scanner := bufio.NewScanner(&out); scanner.Scan(); {
		if !json.Valid(scanner.Bytes()) {
			t.Errorf("the client reads %q", scanner.Text())
		}
		got = append(got, scanner.Text())
	}
	return got
}

const ask = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`

// Whatever the server answers, a request gets one answer, which says what is wrong.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"error of its own": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"mine"}}`)
		}, `"mine"`},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too\nmany", http.StatusServiceUnavailable)
		}, `503 Service Unavailable: too\nmany`},
		"no answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }, "which is no message"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, "which is no message"},
		"broken JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":7`)
		}, "no message"},
		"a cut connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"a stream without an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hello\n\n")
		}, "without an answer"},
		"half a message": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"id\":7}") // no end of the event
		}, "without an answer"},
		"an answer on several lines": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			fmt.Fprint(w, "id: 1\r\ndata: {\"id\":7,\r\ndata:  \"result\":\r\ndata: {}}\r\n\r\n")
		}, `{"id":7,"result":{}}`},
		"a batch": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "[{\"id\":7,\n\"result\":{}}]")
		}, `{"id":7,"result":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := run(t, tt.answer, ask); len(got) != 1 || !strings.Contains(got[0], tt.want) || !strings.Contains(got[0], `"id":7`) {
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
		})
	}
}

// A stream that breaks is asked for again, from the last event on.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	got := run(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch last := r.Header.Get("Last-Event-Id"); {
		case r.Method == http.MethodPost:
			fmt.Fprint(w, "retry: 1\nid: a\ndata: {\"method\":\"one\"}\n\n")
		case last == "a":
			fmt.Fprint(w, "id: b\ndata: {\"method\":\"two\"}\n\nid: c\ndata: {\"lost\"")
		case last == "b":
			fmt.Fprint(w, "data: {\"id\":7,\"result\":{}}\n\n")
		default:
			t.Errorf("%s after %q", r.Method, last)
		}
	}, ask)
	if want := `{"method":"one"} {"method":"two"} {"id":7,"result":{}}`; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Lines that are no messages, and messages that nothing answers, do no harm.
func TestOddLines(t *testing.T) {
	t.Parallel()
	var methods []string
	got := run(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Method string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		methods = append(methods, m.Method)
		w.WriteHeader(400)
	}, "not JSON", "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `[]`)
	if len(got) != 1 || !strings.Contains(got[0], `"id":null`) || len(methods) != 2 {
		t.Errorf("got %q; the server got %q", got, methods)
	}
}

// A server that has taken a request, and forgotten the session by the time the stream is asked for
// again, does not get the request twice.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	posts := map[string]int{}
	got := run(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Method string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		posts[m.Method]++
		switch m.Method {
		case "initialize":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s")
			fmt.Fprint(w, `{"id":1,"result":{"protocolVersion":"2025-06-18"}}`)
		case "tools/list":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "retry: 1\nid: a\ndata: {\"method\":\"one\"}\n\n")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, ask)
	if posts["tools/list"] != 1 || len(got) != 3 || !strings.Contains(got[2], "its stream broke") {
		t.Errorf("sent %v; got %q", posts, got)
	}
}
