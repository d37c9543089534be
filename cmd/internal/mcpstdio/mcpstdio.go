// Package mcpstdio serves one client of the Model Context Protocol over standard input
// and output, one message a line.
//
// The SDK speaks the protocol; this package is its transport. The SDK's own transport
// for pipes ends the session at the first line that is not a message, drops the answers
// to pending calls when the input ends, and accepts any number of calls. This one
// answers a bad line with an error, gives pending calls a second after the end of the
// input, and bounds lines and calls, since an untrusted agent writes them.
package mcpstdio

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of one client.
const (
	// MaxLine is the length of a message. Serve returns [bufio.ErrTooLong] for a
	// longer one.
	MaxLine = 1 << 20
	// MaxPending is the number of requests without an answer. More are refused.
	MaxPending = 64
	// MaxTools is the number of tools that run at once. More wait.
	MaxTools = 8
)

// grace is how long pending calls may take after the end of the input.
const grace = time.Second

// Serve answers the client that writes to in and reads from out. It returns
// when the input has ended and the calls have, or when ctx ends, which cancels
// the calls. A goroutine that reads from in may outlive it, because a read of
// standard input cannot be interrupted.
func Serve(ctx context.Context, server *mcp.Server, in io.Reader, out io.Writer) error {
	server.AddReceivingMiddleware(LimitTools(ctx.Done(), MaxTools))
	return server.Run(ctx, newTransport(in, out))
}

// LimitTools bounds how many tools run at once. It also cancels them when
// ended is closed, because the SDK does not pass that on.
func LimitTools(ended <-chan struct{}, most int) mcp.Middleware {
	running := make(chan struct{}, most)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-ended:
					cancel()
				case <-ctx.Done():
				}
			}()
			if method == "tools/call" {
				select {
				case running <- struct{}{}:
					defer func() { <-running }()
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return next(ctx, method, req)
		}
	}
}

// AddTool adds a tool whose arguments are the fields of T, and whose result is what do
// returns, as JSON.
func AddTool[T any](server *mcp.Server, tool *mcp.Tool, do func(context.Context, *mcp.CallToolRequest, T) (any, error)) {
	mcp.AddTool(server, tool, func(ctx context.Context, request *mcp.CallToolRequest, in T) (*mcp.CallToolResult, any, error) {
		done, err := do(ctx, request, in)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(done)
		if err != nil {
			return nil, nil, err
		}
		// A text alone: clients show a model structured content beside the text or
		// instead of it, each as it likes.
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, nil
	})
}
