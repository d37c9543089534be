// Package agenttest is a model API that plays a script, so that tests can run real
// agents.
//
//	agent ──POST /v1/messages──▶ Model: which Script? which step? ──▶ events
//
// A word in the first prompt chooses the script. The number of the model's messages in
// the history, which comes with each request, chooses the step. So the Model keeps no
// state: agents that retry, restart or run side by side all get the right answers.
//
// It speaks Anthropic's Messages API, OpenAI's Responses API and Chat Completions API, and
// Google's Gemini API, as far as agents use them.
package agenttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Request is a request of an agent.
type Request struct {
	Path   string
	Header http.Header
	Model  string
	Effort string // how much the model is told to think
	Tools  []string
	Turn   int    // how many messages of the model the history has
	System string // what the agent itself tells the model
	First  string // the first thing the user said
	Last   string // the last thing the user said, or a tool returned
	// Returned: the last thing is what a tool returned.
	Returned bool
	Images   []string // all images that the user sent, as data URLs
	Words    []string // those of Watch that are anywhere in the request
	Try      int      // how often this step was requested before, by any agent
	Stream   bool

	usage bool // a stream of the Chat Completions API is to end with its tokens
}

// A Reply is the answer of the model. The zero value is an empty text.
type Reply struct {
	Text  string
	Calls []Call

	Status int         // not 0 or 200: an error
	Error  string      // the error's type, as "overloaded_error"
	After  string      // with an error, when to try again, in seconds: the header retry-after, for Gemini in the body
	Header http.Header // more headers of the answer
	Delay  time.Duration
	Drop   bool // ends the connection within the answer
	Hang   bool // never ends the answer

	// Input and Output are tokens. By default they are 50 out, and one in for each eight
	// bytes of the request, but 1000 at least: who counts does not believe much less.
	Input, Output int64
}

func (r Reply) withDefaults(size int64) Reply {
	if r.Input == 0 {
		r.Input = max(1000, size/8)
	}
	if r.Output == 0 {
		r.Output = 50
	}
	return r
}

// A Call is a tool that the model wants to use. In OpenAI's Responses API the name of a
// server's tool begins with the server's and a slash.
type Call struct {
	Name  string
	Input any
}

// A Step answers one request.
type Step func(Request) Reply

// Say answers with text.
func Say(text string) Step { return func(Request) Reply { return Reply{Text: text} } }

// Use calls a tool.
func Use(name string, input map[string]any) Step {
	return func(Request) Reply { return Reply{Calls: []Call{{name, input}}} }
}

// Fail answers with an error: Fail(529, "overloaded_error").
func Fail(status int, kind string) Step {
	return func(Request) Reply { return Reply{Status: status, Error: kind} }
}

// A Script is the answers to agents whose first prompt contains On. The last step is
// repeated.
type Script struct {
	On    string
	Steps []Step
}

// A Model is an [http.Handler].
type Model struct {
	scripts []Script
	watched []string
	ids     atomic.Int64

	mu       sync.Mutex
	requests []Request      // guarded by mu
	in, out  int64          // guarded by mu
	tries    map[string]int // guarded by mu
}

// New returns a model with scripts; the first that matches is played. It answers "ok"
// to all others.
func New(scripts ...Script) *Model { return &Model{scripts: scripts, tries: map[string]int{}} }

// Watch has requests tell which of some words are anywhere in them. JSON must not quote the words.
func (m *Model) Watch(words ...string) *Model {
	m.watched = words
	return m
}

// Requests returns the requests for messages so far.
func (m *Model) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Request(nil), m.requests...)
}

// Tokens returns how many tokens its answers so far have counted, of requests and of answers.
func (m *Model) Tokens() (in, out int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in, m.out
}

// ServeHTTP implements [http.Handler].
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body interface{ request() Request }
	model, call := generates(r.URL.Path)
	switch {
	case r.Method == http.MethodPost && (call == "generateContent" || call == "streamGenerateContent"):
		body = &generateBody{}
	case r.Method == http.MethodPost && call == "countTokens":
		_, _ = io.WriteString(w, `{"totalTokens":10}`)
		return
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		body = &messagesBody{}
	case r.Method == http.MethodPost && r.URL.Path == "/v1/responses":
		body = &responsesBody{}
	case r.Method == http.MethodPost && r.URL.Path == "/v1/chat/completions":
		body = &completionsBody{}
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages/count_tokens":
		_, _ = io.WriteString(w, `{"input_tokens":10}`)
		return
	case r.Method == http.MethodHead:
		return
	default:
		fail(w, Reply{Status: http.StatusNotFound, Error: "not_found_error"})
		return
	}
	sent := &sizeReader{from: r.Body, keep: len(m.watched) > 0}
	if err := json.NewDecoder(sent).Decode(body); err != nil {
		fail(w, Reply{Status: http.StatusBadRequest, Error: "invalid_request_error"})
		return
	}
	req := body.request()
	req.Path, req.Header = r.URL.Path, r.Header.Clone()
	for _, word := range m.watched {
		if bytes.Contains(sent.kept, []byte(word)) {
			req.Words = append(req.Words, word)
		}
	}
	if model != "" {
		req.Model, req.Stream = model, call == "streamGenerateContent"
	}
	reply := m.reply(&req)
	select {
	case <-time.After(reply.Delay):
	case <-r.Context().Done():
		return
	}
	maps.Copy(w.Header(), reply.Header)
	if reply.Status != 0 && reply.Status != http.StatusOK {
		if model != "" {
			failGenerate(w, reply)
		} else {
			fail(w, reply)
		}
		return
	}
	a := &answer{w: w, reply: reply.withDefaults(sent.size), req: req, id: m.ids.Add(1)}
	m.mu.Lock()
	m.in, m.out = m.in+a.reply.Input, m.out+a.reply.Output
	m.mu.Unlock()
	switch {
	case model != "":
		a.generate()
	case req.Path == "/v1/responses":
		a.respond()
	case req.Path == "/v1/chat/completions":
		a.complete()
	default:
		a.send()
	}
	if reply.Hang {
		<-r.Context().Done()
	}
}

// reply chooses the script and the step, and records the request.
func (m *Model) reply(req *Request) Reply {
	step := Say("ok")
	key := "-"
	for _, s := range m.scripts {
		if strings.Contains(req.First, s.On) && len(s.Steps) > 0 {
			n := min(req.Turn, len(s.Steps)-1)
			step, key = s.Steps[n], fmt.Sprintf("%s/%d", s.On, n)
			break
		}
	}
	m.mu.Lock()
	req.Try = m.tries[key]
	m.tries[key]++
	m.requests = append(m.requests, *req)
	m.mu.Unlock()
	return step(*req)
}

// A sizeReader counts what it reads, and keeps it if it is to.
type sizeReader struct {
	from io.Reader
	size int64
	keep bool
	kept []byte
}

func (s *sizeReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.size += int64(n)
	if s.keep {
		s.kept = append(s.kept, p[:n]...)
	}
	return n, err
}

func fail(w http.ResponseWriter, r Reply) {
	w.Header().Set("Content-Type", "application/json")
	if r.After != "" {
		w.Header().Set("Retry-After", r.After)
	}
	w.WriteHeader(r.Status)
	_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"scripted"}}`, r.Error)
}
