package insidecmd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/inside"
)

// How much a call of terminal_read brings, and how long it waits, unless it says.
const (
	mcpReadBytes = 16 << 10
	mcpReadWait  = 5
)

// mcpGather is how long what comes along with the first output is waited for:
// programs write a line in pieces.
const mcpGather = 250 * time.Millisecond

// terminalTools are the tools by which an agent uses the terminals of its jail.
type terminalTools struct {
	client *inside.Client
	id     string // the sender of the requests

	mu    sync.Mutex    // guards read
	read  map[int]int64 // where the last read of a terminal ended
	typed chan map[int]int64
}

func newTerminalTools(client *inside.Client) *terminalTools {
	t := &terminalTools{client: client, id: jobs.NewID(), read: map[int]int64{}, typed: make(chan map[int]int64, 1)}
	t.typed <- map[int]int64{}
	return t
}

type createArgs struct {
	Command []string `json:"command,omitempty" jsonschema:"the program and its arguments, not by a shell; left out: a shell"`
	Rows    uint16   `json:"rows,omitempty" jsonschema:"lines of the screen; 24"`
	Columns uint16   `json:"columns,omitempty" jsonschema:"characters of a line; 80"`
}

type writeArgs struct {
	Terminal int    `json:"terminal" jsonschema:"the terminal's number"`
	Text     string `json:"text" jsonschema:"what to type; a line ends with \\r, and \\u0003 is Ctrl-C"`
}

type readArgs struct {
	Terminal int    `json:"terminal" jsonschema:"the terminal's number"`
	From     *int64 `json:"from,omitempty" jsonschema:"the byte to begin at, of all that was shown; left out: where the last read ended"`
	Wait     *int   `json:"wait_seconds,omitempty" jsonschema:"how long to wait for something new, 0 to 30; 5"`
	Bytes    int    `json:"max_bytes,omitempty" jsonschema:"at most so much, up to 65536; 16384"`
}

type closeArgs struct {
	Terminal int `json:"terminal" jsonschema:"the terminal's number"`
}

func (t *terminalTools) create(ctx context.Context, in createArgs) (any, error) {
	// An id of its own: the same one would be the same terminal.
	answer, err := t.client.Terminal(ctx, inside.Terminal{Request: terminal.Request{
		Verb: terminal.Open, ID: jobs.NewID(), Args: in.Command, Rows: in.Rows, Columns: in.Columns,
	}})
	if err != nil {
		return nil, err
	}
	return answer.Terminals[0], nil
}

func (t *terminalTools) listed(ctx context.Context, _ struct{}) (any, error) {
	answer, err := t.client.Terminal(ctx, inside.Terminal{Request: terminal.Request{Verb: terminal.List}})
	if err != nil {
		return nil, err
	}
	return map[string]any{"terminals": append([]terminal.Info{}, answer.Terminals...)}, nil
}

func (t *terminalTools) end(ctx context.Context, in closeArgs) (any, error) {
	_, err := t.client.Terminal(ctx, inside.Terminal{Request: terminal.Request{Verb: terminal.Close, Terminal: in.Terminal}})
	return map[string]int{"closed": in.Terminal}, err
}

// write types. What was typed is counted, so one call waits for the other.
func (t *terminalTools) write(ctx context.Context, in writeArgs) (any, error) {
	if len(in.Text) > terminal.MaxInput {
		return nil, fmt.Errorf("the text has %d bytes; at most %d can be typed at once", len(in.Text), terminal.MaxInput)
	}
	typed := <-t.typed
	defer func() { t.typed <- typed }()
	from, known := typed[in.Terminal]
	if !known { // an earlier answer may have been lost
		answer, err := t.types(ctx, in.Terminal, 0, "")
		if err != nil {
			return nil, err
		}
		from = answer.From
	}
	delete(typed, in.Terminal)
	answer, err := t.types(ctx, in.Terminal, from, in.Text)
	if err != nil {
		return nil, err
	}
	typed[in.Terminal] = answer.From
	if taken := answer.From - from; taken < int64(len(in.Text)) {
		return nil, fmt.Errorf("only the first %d of %d bytes were typed, because the program does not read; send the rest later", taken, len(in.Text))
	}
	return map[string]int{"typed": len(in.Text)}, nil
}

func (t *terminalTools) types(ctx context.Context, number int, from int64, text string) (terminal.Answer, error) {
	return t.client.Terminal(ctx, inside.Terminal{Request: terminal.Request{
		Verb: terminal.Write, ID: t.id, Terminal: number, From: from, Data: []byte(text),
	}})
}

// A screenful is the result of terminal_read.
type screenful struct {
	From int64          `json:"from"` // later than requested, because the rest is not kept
	Next int64          `json:"next"`
	Text string         `json:"text"`
	Exit *terminal.Exit `json:"exit,omitempty"` // nothing comes after it
}

func (t *terminalTools) show(ctx context.Context, in readArgs) (any, error) {
	limit, wait := mcpReadBytes, mcpReadWait
	if in.Bytes > 0 {
		limit = min(in.Bytes, terminal.MaxOutput)
	}
	if in.Wait != nil {
		wait = min(max(*in.Wait, 0), int(inside.MaxWait.Seconds()))
	}
	limit = max(limit, utf8.UTFMax)
	from := t.ended(in.Terminal)
	if in.From != nil {
		from = *in.From
	}
	got, err := t.await(ctx, in.Terminal, from, time.Duration(wait)*time.Second)
	if err != nil {
		return nil, err
	}
	if len(got.Data) > 0 && len(got.Data) < limit && got.Exit == nil {
		select {
		case <-time.After(mcpGather):
		case <-ctx.Done():
		}
		rest, err := t.ask(ctx, in.Terminal, got.From+int64(len(got.Data)), 0)
		if err == nil && rest.From == got.From+int64(len(got.Data)) {
			got.Data, got.Exit = append(got.Data, rest.Data...), rest.Exit
		}
	}
	if whole := wholeCharacters(got.Data, limit); whole < len(got.Data) && (len(got.Data) > limit || got.Exit == nil) {
		got.Data, got.Exit = got.Data[:whole], nil
	}
	out := screenful{got.From, got.From + int64(len(got.Data)), strings.ToValidUTF8(string(got.Data), "\uFFFD"), got.Exit}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read[in.Terminal] = out.Next
	return out, nil
}

func (t *terminalTools) ended(number int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read[number]
}

// await asks until something was shown, or the time is over.
func (t *terminalTools) await(ctx context.Context, number int, from int64, wait time.Duration) (terminal.Answer, error) {
	until := time.Now().Add(wait)
	for {
		left := max(time.Until(until), 0)
		answer, err := t.ask(ctx, number, from, left)
		if err != nil || len(answer.Data) > 0 || answer.Exit != nil || left == 0 {
			return answer, err
		}
	}
}

func (t *terminalTools) ask(ctx context.Context, number int, from int64, wait time.Duration) (terminal.Answer, error) {
	return t.client.Terminal(ctx, inside.Terminal{
		Request: terminal.Request{Verb: terminal.Read, ID: t.id, Terminal: number, From: from}, Wait: jobs.Duration(wait),
	})
}

// wholeCharacters is how many of the bytes to take, so that no character is cut.
func wholeCharacters(data []byte, limit int) int {
	n := min(len(data), limit)
	for cut := 1; cut < utf8.UTFMax && cut <= n; cut++ {
		if b := data[n-cut]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[n-cut : n]) {
				return n - cut
			}
			break
		}
	}
	return n
}
