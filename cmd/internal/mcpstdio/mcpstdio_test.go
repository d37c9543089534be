package mcpstdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/mcpstdio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18"}}` + "\n"

func call(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait"}}`+"\n", id)
}

// A client speaks to a server with one tool, wait, which runs until it is
// released or cancelled.
type client struct {
	*testing.T
	in      *io.PipeWriter
	out     *bufio.Reader
	release chan struct{}
	running atomic.Int64
	ended   chan error
}

func connect(t *testing.T) *client {
	in, write := io.Pipe()
	read, out := io.Pipe()
	c := &client{T: t, in: write, out: bufio.NewReader(read), release: make(chan struct{}), ended: make(chan error, 1)}
	server := mcp.NewServer(&mcp.Implementation{Name: "test"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		c.running.Add(1)
		defer c.running.Add(-1)
		select {
		case <-c.release:
			return nil, nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { c.ended <- mcpstdio.Serve(ctx, server, in, out); _ = out.Close() }()
	t.Cleanup(func() { cancel(); _ = in.Close(); _ = read.Close() })
	c.send(hello)
	if got := c.answer(); got.ID != "hello" || got.Error != nil {
		t.Fatalf("initialize: %+v", got)
	}
	return c
}

func (c *client) send(text string) {
	c.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		c.Fatal(err)
	}
}

type answer struct {
	ID    any
	Error *struct {
		Code    int
		Message string
	}
	Result struct{ IsError bool }
}

func (c *client) answer() (a answer) {
	c.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.Fatal(err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		c.Fatalf("%s: %v", line, err)
	}
	return a
}

// A line that is no message gets an error, and the session goes on.
func TestBadLines(t *testing.T) {
	c := connect(t)
	for line, code := range map[string]int{
		`{"jsonrpc":"2.0","id":`: -32700, "x": -32700, "": -32700, "{}{}": -32700, `{"jsonrpc":"2.0","id":1,"method":"ping"} {}`: -32700, "7": -32600, "[]": -32600, `{"id":1,"method":"ping"}`: -32600,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`: -32600, `{"jsonrpc":"2.0","id":1,"method":7}`: -32600, strings.Repeat("[", 5000): -32700,
	} {
		c.send(line + "\n")
		if got := c.answer(); got.Error == nil || got.Error.Code != code || got.ID != nil || len(got.Error.Message) > 300 {
			t.Errorf("%.40s: %+v, want code %d", line, got.Error, code)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n")
	if got := c.answer(); got.ID != 2.0 || got.Error != nil {
		t.Errorf("ping: %+v", got)
	}
}

func TestLineTooLong(t *testing.T) {
	c := connect(t)
	go func() { _, _ = io.WriteString(c.in, strings.Repeat("x", mcpstdio.MaxLine+1)) }()
	if err := <-c.ended; !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("ended with %v", err)
	}
}

// At most MaxTools tools run. Others wait, and what is more than MaxPending is
// refused at once.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		for id := range mcpstdio.MaxPending {
			c.send(call(id))
		}
		c.send(call(1000))
		if got := c.answer(); got.ID != 1000.0 || got.Error == nil || got.Error.Code != -32000 {
			t.Errorf("one call too many: %+v", got)
		}
		synctest.Wait()
		if n := c.running.Load(); n != mcpstdio.MaxTools {
			t.Errorf("%d tools run", n)
		}
		close(c.release)
		for range mcpstdio.MaxPending {
			if got := c.answer(); got.Error != nil || got.Result.IsError {
				t.Errorf("%+v", got)
			}
		}
		c.send(call(2000))
		if got := c.answer(); got.ID != 2000.0 || got.Error != nil {
			t.Errorf("a call after the others: %+v", got)
		}
	})
}

// A client cancels the calls that run and those that wait.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		last := mcpstdio.MaxTools
		for id := range last + 1 {
			c.send(call(id))
		}
		synctest.Wait()
		for _, id := range []int{0, last} {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id))
			if got := c.answer(); got.ID != float64(id) || got.Error == nil && !got.Result.IsError {
				t.Errorf("cancelled: %+v", got)
			}
		}
	})
}

// Calls that are pending when the input ends may still end, but not for long.
func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		c.send(call(1))
		c.send(call(2))
		synctest.Wait()
		began := time.Now()
		if err := c.in.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
		c.release <- struct{}{}
		if got := c.answer(); got.Error != nil || got.Result.IsError {
			t.Errorf("the call that ended in time: %+v", got)
		}
		if err := <-c.ended; err != nil || time.Since(began) != time.Second {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
		if rest, err := io.ReadAll(c.out); err != nil || len(rest) > 0 {
			t.Errorf("then: %q, %v", rest, err)
		}
		if n := c.running.Load(); n != 0 {
			t.Errorf("%d tools run on", n)
		}
	})
}

// An answer that cannot be delivered ends the session.
func TestBrokenOutput(t *testing.T) {
	in, write := io.Pipe()
	read, out := io.Pipe()
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(write, hello) }()
	server := mcp.NewServer(&mcp.Implementation{Name: "test"}, nil)
	if err := mcpstdio.Serve(t.Context(), server, in, out); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ended with %v", err)
	}
	_ = in.Close()
}

// Serve cancels the calls when its context ends.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, write := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		server := mcp.NewServer(&mcp.Implementation{Name: "test"}, nil)
		cancelled := false
		mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			<-ctx.Done()
			cancelled = true
			return nil, nil, ctx.Err()
		})
		ended := make(chan error, 1)
		go func() { ended <- mcpstdio.Serve(ctx, server, in, &bytes.Buffer{}) }()
		if _, err := io.WriteString(write, hello+call(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !cancelled {
			t.Errorf("ended with %v, the tool cancelled: %t", err, cancelled)
		}
		_ = in.Close()
	})
}
