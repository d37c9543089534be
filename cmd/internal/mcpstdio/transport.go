package mcpstdio

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeOverloaded is of the range that JSON-RPC leaves to servers.
const codeOverloaded = -32000

// A transport is the connection that it returns.
type transport struct {
	lines    <-chan line
	closed   chan struct{}
	close    func()
	pending  atomic.Int64  // requests without an answer
	answered chan struct{} // holds one value after an answer

	mu  sync.Mutex // held while a message is written to out, or messages would mix
	out io.Writer
}

// A line is one of the input, or the error that ended it.
type line struct {
	text []byte
	err  error
}

func newTransport(in io.Reader, out io.Writer) *transport {
	closed := make(chan struct{})
	return &transport{
		lines: readLines(in, closed), closed: closed, close: sync.OnceFunc(func() { close(closed) }),
		answered: make(chan struct{}, 1), out: out,
	}
}

// readLines reads in a goroutine of its own, so that Close can interrupt Read.
func readLines(in io.Reader, closed <-chan struct{}) <-chan line {
	lines := make(chan line)
	go func() {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, MaxLine)
		next := line{}
		for next.err == nil {
			switch {
			case scanner.Scan():
				next.text = slices.Clone(scanner.Bytes())
			case scanner.Err() != nil:
				next.err = scanner.Err()
			default:
				next.err = io.EOF
			}
			select {
			case lines <- next:
			case <-closed:
				return
			}
		}
	}()
	return lines
}

func (t *transport) Connect(context.Context) (mcp.Connection, error) { return t, nil }

func (t *transport) SessionID() string { return "" }

// Close leaves standard input and output open: they belong to the process.
func (t *transport) Close() error {
	t.close()
	return nil
}

// Read returns the next message for the SDK. It refuses lines that are no
// message, and requests beyond the limit, itself.
func (t *transport) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var next line
		select {
		case next = <-t.lines:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.closed:
			return nil, io.EOF
		}
		if next.err != nil {
			t.finish()
			return nil, next.err
		}
		msg, refusal := t.accept(next.text)
		if refusal == nil {
			return msg, nil
		}
		if err := t.send(refusal); err != nil {
			return nil, err
		}
	}
}

// accept returns the message of a line, or why it is refused.
func (t *transport) accept(text []byte) (jsonrpc.Message, *jsonrpc.Response) {
	if !json.Valid(text) { // the SDK reads no further than the first value
		return nil, refuse(jsonrpc.ID{}, jsonrpc.CodeParseError, "the line is not JSON")
	}
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		return nil, refuse(jsonrpc.ID{}, jsonrpc.CodeInvalidRequest, fmt.Sprintf("the line is not one message: %.200s", err))
	}
	request, ok := msg.(*jsonrpc.Request)
	if !ok || !request.IsCall() {
		return msg, nil
	}
	if t.pending.Load() >= MaxPending {
		return nil, refuse(request.ID, codeOverloaded, fmt.Sprintf("%d requests have no answer yet, which is the limit; wait for one", MaxPending))
	}
	t.pending.Add(1)
	return msg, nil
}

func refuse(id jsonrpc.ID, code int64, why string) *jsonrpc.Response {
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: code, Message: why}}
}

// finish waits for the answers to pending requests. The SDK would write none after Read
// has returned an error.
func (t *transport) finish() {
	over := time.NewTimer(grace)
	defer over.Stop()
	for t.pending.Load() > 0 {
		select {
		case <-t.answered:
		case <-over.C:
			return
		case <-t.closed:
			return
		}
	}
}

// Write is called at the same time by several calls.
func (t *transport) Write(_ context.Context, msg jsonrpc.Message) error {
	if _, ok := msg.(*jsonrpc.Response); ok {
		defer t.countAnswer()
	}
	return t.send(msg)
}

func (t *transport) countAnswer() {
	t.pending.Add(-1)
	select {
	case t.answered <- struct{}{}:
	default: // finish has not seen the last one yet
	}
}

func (t *transport) send(msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err = t.out.Write(append(data, '\n'))
	return err
}
