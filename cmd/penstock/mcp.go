package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// Bounds of what the agent may send to the server of its terminals.
const (
	maxMCPLine  = 1 << 20
	maxMCPCalls = 8 // at once
)

// mcpEnd is how long calls go on when the input has ended.
const mcpEnd = time.Second

// mcpVersions are the versions of the protocol that say the same about all that
// is spoken here, the newest first.
var mcpVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func (a *app) terminalsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "terminals", Short: "In a job's jail: give the agent terminals, as an MCP server", Args: cobra.NoArgs,
		Long: `Terminals speaks the Model Context Protocol over standard input and output, until the
input ends. Its tools create, write, read, list and close terminals of the jail: the same
ones that penstock attach opens and shows. Agents get it by --terminals.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := insideClient()
			if err != nil {
				return err
			}
			s := mcpServer{out: a.out, tools: newTerminalTools(client)}
			return s.run(cmd.Context(), a.in)
		},
	}
}

// An mcpServer answers one client of the Model Context Protocol, a line each.
// Calls of tools run side by side, because some wait.
type mcpServer struct {
	tools *terminalTools

	mu  sync.Mutex
	out io.Writer
}

// An mcpRequest without an id is a notification, which nobody answers.
type mcpRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type mcpAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *mcpError       `json:"error,omitempty"`
}

// mcpError is one of the protocol; what a tool cannot do is a result.
type mcpError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *mcpError) Error() string { return e.Message }

// The codes of JSON-RPC.
const (
	mcpNotJSON       = -32700
	mcpNotRequest    = -32600
	mcpUnknownMethod = -32601
	mcpWrongParams   = -32602
)

func (s *mcpServer) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls errgroup.Group
	calls.SetLimit(maxMCPCalls)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMCPLine)
	var err error
	for err == nil && lines.Scan() {
		err = s.line(ctx, slices.Clone(lines.Bytes()), &calls)
	}
	// Who has no more to ask may read the answers, but waits for no terminal.
	defer time.AfterFunc(mcpEnd, cancel).Stop()
	return errors.Join(err, calls.Wait(), lineError(lines.Err()))
}

func lineError(err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		return cli.Usage("", "a line has more than %d bytes", maxMCPLine)
	}
	return err
}

// line takes one message. An error means that nobody hears an answer.
func (s *mcpServer) line(ctx context.Context, line []byte, calls *errgroup.Group) error {
	var r mcpRequest
	switch {
	case !json.Valid(line):
		return s.answer(nil, nil, &mcpError{mcpNotJSON, "the line is not JSON"})
	case json.Unmarshal(line, &r) != nil || !validID(r.ID):
		return s.answer(nil, nil, &mcpError{mcpNotRequest, "the line is not one request"})
	case r.ID == nil:
		return nil // a notification, or nothing that we have asked
	case r.Method == "":
		return s.answer(r.ID, nil, &mcpError{mcpNotRequest, "the request has no method"})
	case r.Method != "tools/call":
		result, err := s.ask(r)
		return s.answer(r.ID, result, err)
	}
	calls.Go(func() error {
		result, err := s.call(ctx, r.Params)
		if ctx.Err() != nil {
			return nil
		}
		return s.answer(r.ID, result, err)
	})
	return nil
}

// validID accepts a text, a number, or none.
func validID(id json.RawMessage) bool {
	return id == nil || id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9'
}

func (s *mcpServer) answer(id json.RawMessage, result any, err error) error {
	a := mcpAnswer{Version: "2.0", ID: id, Result: result}
	if err != nil {
		var wrong *mcpError
		if !errors.As(err, &wrong) {
			return err
		}
		a.Result, a.Error = nil, wrong
	}
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.out.Write(append(line, '\n'))
	return err
}

func (s *mcpServer) ask(r mcpRequest) (any, error) {
	switch r.Method {
	case "initialize":
		var p struct {
			Version string `json:"protocolVersion"`
		}
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, &mcpError{mcpWrongParams, "initialize: " + err.Error()}
		}
		if !slices.Contains(mcpVersions, p.Version) {
			p.Version = mcpVersions[0] // a client that does not know it leaves
		}
		return map[string]any{
			"protocolVersion": p.Version, "capabilities": map[string]any{"tools": struct{}{}},
			"serverInfo":   map[string]string{"name": "penstock-terminals", "version": release()},
			"instructions": "Terminals for programs that go on running or want to be typed to. People may look at them, and type.",
		}, nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		list, err := s.tools.list()
		return map[string]any{"tools": list}, err
	}
	return nil, &mcpError{mcpUnknownMethod, fmt.Sprintf("method %.100q is not known", r.Method)}
}

// An mcpResult is what a tool has done, or why it has not.
type mcpResult struct {
	Content []mcpText `json:"content"`
	IsError bool      `json:"isError,omitempty"`
}

type mcpText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (s *mcpServer) call(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &mcpError{mcpWrongParams, "tools/call: " + err.Error()}
	}
	tool, known := s.tools.named(p.Name)
	if !known {
		return nil, &mcpError{mcpWrongParams, fmt.Sprintf("tool %.100q is not known", p.Name)}
	}
	if len(p.Arguments) == 0 {
		p.Arguments = json.RawMessage("{}")
	}
	done, err := tool.do(ctx, p.Arguments)
	if err != nil {
		return failedCall(err), nil
	}
	text, err := json.Marshal(done)
	if err != nil {
		return nil, err
	}
	return mcpResult{Content: []mcpText{{"text", string(text)}}}, nil
}

func failedCall(err error) mcpResult {
	return mcpResult{Content: []mcpText{{"text", err.Error()}}, IsError: true}
}
