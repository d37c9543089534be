// Package mcpbridge connects a client of the Model Context Protocol, which speaks over standard input
// and output, to a server of the protocol's streamable HTTP.
//
//	client ──line──▶ Bridge ──POST──▶ server
//	       ◀─line───        ◀──JSON or a stream of events──
//
// Every agent can start a server and speak with it so, and few do all that the other form has:
// sessions that end, streams that break, a header with the version. Messages pass as they are.
package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/penstock-run/penstock/jobs/pause"
)

// Limits of messages: of the client, and of the server, whose tools may return images.
const (
	MaxLine   = 1 << 20
	maxAnswer = 32 << 20
)

const (
	pending = 64               // requests under way; more wait
	grace   = 10 * time.Second // for answers, after the client's input has ended
	retries = 5                // of a stream that breaks
)

// A Request sends one HTTP request to the server. A nil body is none.
type Request func(ctx context.Context, method string, header http.Header, body []byte) (*http.Response, error)

// A bridge is one client and one server.
type bridge struct {
	name    string
	request Request
	out     *writer

	mu      sync.Mutex
	session string // as the server calls it; "" before, or if it has none
	version string // of the protocol, once both have agreed
	hello   []byte // the client's first request, for a server that has forgotten the session

	renewals singleflight.Group // by the session that is forgotten
}

// Run connects the client that writes to in and reads from out to the server with that name,
// until in ends, or ctx does.
func Run(ctx context.Context, name string, request Request, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &bridge{name: name, request: request, out: &writer{to: out}}
	var all, streams sync.WaitGroup
	slots := make(chan struct{}, pending)
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, MaxLine)
	for ctx.Err() == nil && scanner.Scan() {
		line := bytes.Clone(bytes.TrimSpace(scanner.Bytes()))
		if len(line) == 0 {
			continue
		}
		m := parse(line)
		switch {
		case !json.Valid(line):
			b.out.fail(json.RawMessage("null"), "the line is not JSON")
		case m.Method == "initialize":
			if b.send(ctx, m) {
				streams.Go(func() { b.listen(ctx) })
			}
		case !m.asks(): // what follows may need that the server has it
			b.send(ctx, m)
		default:
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				b.send(ctx, m)
			})
		}
	}
	answered := time.AfterFunc(grace, cancel)
	all.Wait()
	answered.Stop()
	cancel()
	streams.Wait()
	b.end()
	return errors.Join(scanner.Err(), b.out.failed())
}

// A message is a line of the client.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
	content []byte
}

// parse reads what the bridge has to know. What it cannot read passes on, for the server to refuse.
func parse(line []byte) message {
	var m message
	_ = json.Unmarshal(line, &m)
	m.content = line
	return m
}

// asks reports whether a message wants an answer.
func (m message) asks() bool { return len(m.ID) > 0 && m.Method != "" }

// send sends one message and writes what the server answers. It reports whether it has answered.
func (b *bridge) send(ctx context.Context, m message) bool {
	session := b.current()
	err := b.exchange(ctx, m)
	if errors.Is(err, errForgotten) && session != "" && m.Method != "initialize" {
		if err = b.renew(ctx, session); err == nil {
			err = b.exchange(ctx, m)
		}
	}
	if err != nil && m.asks() {
		b.out.fail(m.ID, fmt.Sprintf("MCP server %s: %v", b.name, err))
	}
	return err == nil
}

// errForgotten is the answer of a server that does not know the session, or does not exist.
var errForgotten = errors.New("it answered with 404 Not Found")

// exchange sends a message and writes the answer.
func (b *bridge) exchange(ctx context.Context, m message) error {
	header := b.header("application/json, text/event-stream")
	if v := m.Params.Meta.Version; v != "" {
		header.Set("Mcp-Protocol-Version", v)
	}
	header.Set("Content-Type", "application/json")
	res, err := b.request(ctx, http.MethodPost, header, m.content)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return b.answer(ctx, m, res)
}

// answer writes the server's answer to a message.
func (b *bridge) answer(ctx context.Context, m message, res *http.Response) error {
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case res.StatusCode >= 400:
		return b.refused(m, res)
	case !m.asks():
		return nil
	case media == "text/event-stream":
		return b.stream(ctx, m, res)
	case media != "application/json":
		return fmt.Errorf("it answered with %s and %q, which is no message", res.Status, media)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	b.learn(m, res.Header, data)
	return b.out.message(data)
}

// refused writes the server's own words, if they are an answer to the message.
func (b *bridge) refused(m message, res *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	var own struct {
		ID    json.RawMessage `json:"id"`
		Error json.RawMessage `json:"error"`
	}
	if m.asks() && json.Unmarshal(data, &own) == nil && bytes.Equal(own.ID, m.ID) && len(own.Error) > 0 {
		return b.out.message(data)
	}
	if res.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %.500s", errForgotten, strings.TrimSpace(string(data)))
	}
	return fmt.Errorf("it answered with %s: %.500s", res.Status, strings.TrimSpace(string(data)))
}

// stream writes the messages of a stream until that has the answer to m, which a server may
// send over another stream if this one breaks.
func (b *bridge) stream(ctx context.Context, m message, res *http.Response) error {
	s := &events{}
	answered := func(data []byte) bool {
		b.learn(m, res.Header, data)
		return bytes.Equal(parse(data).ID, m.ID) && parse(data).Method == ""
	}
	for tries := 0; ; tries++ {
		done, err := s.read(res.Body, b.out, answered)
		res.Body.Close()
		switch {
		case done:
			return nil
		case s.last == "" || tries == retries:
			return errors.Join(errors.New("its stream ended without an answer"), err)
		}
		if !pause.For(ctx, s.wait(tries)) {
			return context.Cause(ctx)
		}
		header := b.header("text/event-stream")
		header.Set("Last-Event-Id", s.last)
		next, err := b.request(ctx, http.MethodGet, header, nil)
		if err != nil {
			return err
		}
		if res = next; res.StatusCode != http.StatusOK {
			defer res.Body.Close()
			if err := b.refused(m, res); err != nil {
				return errors.New("its stream broke, and " + err.Error()) // nothing to send again: the server may have done it
			}
			return nil
		}
	}
}

// listen writes what the server sends without being asked, if it has a stream for that.
func (b *bridge) listen(ctx context.Context) {
	s := &events{}
	for tries := 0; ctx.Err() == nil; tries++ {
		header := b.header("text/event-stream")
		if s.last != "" {
			header.Set("Last-Event-Id", s.last)
		}
		res, err := b.request(ctx, http.MethodGet, header, nil)
		if err == nil && res.StatusCode >= 400 && res.StatusCode < 500 && res.StatusCode != http.StatusNotFound {
			res.Body.Close()
			return // it has none
		}
		if err == nil && res.StatusCode == http.StatusOK {
			before := s.last
			_, _ = s.read(res.Body, b.out, func([]byte) bool { return false })
			if s.last != before {
				tries = 0
			}
		}
		if err == nil {
			res.Body.Close()
		}
		if !pause.For(ctx, s.wait(tries)) {
			return
		}
	}
}

// learn keeps what the answer to the client's first request says.
func (b *bridge) learn(m message, header http.Header, data []byte) {
	if m.Method != "initialize" {
		return
	}
	var hello struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(data, &hello) != nil || hello.Result.Version == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.version, b.hello = header.Get("Mcp-Session-Id"), hello.Result.Version, m.content
}

// renew opens a session in place of one that the server has forgotten, as it does when it is
// started anew. Requests that find that out at the same time share the new one.
func (b *bridge) renew(ctx context.Context, forgotten string) error {
	_, err, _ := b.renewals.Do(forgotten, func() (any, error) {
		b.mu.Lock()
		hello, again := b.hello, b.session == forgotten
		b.mu.Unlock()
		if !again {
			return nil, nil // an earlier request has done it
		}
		silent := &bridge{name: b.name, request: b.request, out: &writer{to: io.Discard}}
		if !silent.send(ctx, parse(hello)) || !silent.send(ctx, parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))) {
			return nil, errors.New("it has forgotten the session, and opens no other one")
		}
		b.mu.Lock()
		b.session, b.version = silent.session, silent.version
		b.mu.Unlock()
		return nil, nil
	})
	return err
}

// end tells the server that the session is over.
func (b *bridge) end() {
	if b.current() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if res, err := b.request(ctx, http.MethodDelete, b.header("application/json"), nil); err == nil {
		res.Body.Close()
	}
}

func (b *bridge) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// header has what the server has to know of each request.
func (b *bridge) header(accept string) http.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	header := http.Header{"Accept": {accept}}
	if b.session != "" {
		header.Set("Mcp-Session-Id", b.session)
	}
	if b.version != "" {
		header.Set("Mcp-Protocol-Version", b.version)
	}
	return header
}
