package mcptools

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// Bounds of answers: models pay for what they read.
const (
	mostText   = 64 << 10 // bytes of a patch or a log in one answer
	mostData   = 4 << 10  // bytes of one event's payload
	mostWait   = 55       // seconds; clients give up after a minute
	mostEvents = 200
	mostListed = 50
	fewEvents  = 50
	fewListed  = 20
)

type jobArgs struct {
	ID string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
}

// A jobView is what a model is told of a job.
type jobView struct {
	Job    jobs.Record   `json:"job"`
	Why    *why.Standing `json:"why,omitempty"`   // of a job that has not finished
	Cause  *jobs.Cause   `json:"cause,omitempty"` // what the reason means
	Result *jobs.Result  `json:"result,omitempty"`
}

func (t *tools) get(ctx context.Context, _ *mcp.CallToolRequest, in jobArgs) (any, error) {
	rec, err := t.c.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return t.view(ctx, rec)
}

func (t *tools) view(ctx context.Context, rec jobs.Record) (any, error) {
	view := jobView{Job: rec}
	if cause, ok := jobs.Reasons[rec.Reason]; ok {
		view.Cause = &cause
	}
	if rec.State != jobs.Finished {
		standing, err := t.c.Why(ctx, rec.ID)
		view.Why = &standing
		return view, err
	}
	result, err := t.c.Result(ctx, rec.ID)
	if errors.Is(err, jobs.ErrNotFound) { // results may be kept for a shorter time than records
		return view, nil
	}
	view.Result = &result
	return view, err
}

type waitArgs struct {
	ID      string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Seconds int    `json:"seconds,omitempty" jsonschema:"How long to wait, 1 to 55, which is the default."`
}

// wait returns when the job has finished, when its agent asks something, or when the
// time is over. Meanwhile it tells a client that wants to know what state the job is in.
func (t *tools) wait(ctx context.Context, call *mcp.CallToolRequest, in waitArgs) (any, error) {
	if in.Seconds < 1 || in.Seconds > mostWait {
		in.Seconds = mostWait
	}
	began := time.Now()
	until := began.Add(time.Duration(in.Seconds) * time.Second)
	token := call.Params.GetProgressToken()
	for {
		part := min(max(time.Until(until), time.Millisecond), 2*time.Second)
		rec, err := client.Ask(ctx, t.c, operation.Wait, operation.WaitRequest{ID: in.ID, For: jobs.Duration(part)})
		if err != nil {
			return nil, err
		}
		if rec.State == jobs.Finished || rec.Asks != nil || rec.Asking() || !time.Now().Before(until) {
			return t.view(ctx, rec)
		}
		if token != nil {
			// A client that does not hear of the progress hears of the end.
			_ = call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Total: float64(in.Seconds), Message: "the job is " + string(rec.State),
			})
		}
	}
}

type listArgs struct {
	Batch   string `json:"batch,omitempty" jsonschema:"Of this batch."`
	Queue   string `json:"queue,omitempty" jsonschema:"Of this queue."`
	State   string `json:"state,omitempty" jsonschema:"In this state."`
	Outcome string `json:"outcome,omitempty" jsonschema:"With this outcome."`
	Since   string `json:"since,omitempty" jsonschema:"Submitted within this time, as in 24h."`
	After   string `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit   int    `json:"limit,omitempty" jsonschema:"How many jobs, 1 to 50; the default is 20."`
}

func (t *tools) list(ctx context.Context, _ *mcp.CallToolRequest, in listArgs) (any, error) {
	request := operation.ListRequest{
		Batch: in.Batch, Queue: in.Queue, State: jobs.State(in.State), Outcome: jobs.Outcome(in.Outcome),
		After: in.After, Limit: within(in.Limit, fewListed, mostListed),
	}
	if in.Since != "" {
		ago, err := time.ParseDuration(in.Since)
		if err != nil {
			return nil, invalid("since", "is not a duration as 90m or 24h")
		}
		at := time.Now().Add(-ago)
		request.Since = &at
	}
	return client.Ask(ctx, t.c, operation.List, request)
}

// within is a number that a model has given: the usual one for none, and at most most.
func within(n, usual, most int) int {
	if n < 1 {
		return usual
	}
	return min(n, most)
}

type logArgs struct {
	ID    string  `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	After *uint64 `json:"after,omitempty" jsonschema:"Return the events behind this sequence number. Left out, the last ones."`
	Limit int     `json:"limit,omitempty" jsonschema:"How many events, 1 to 200; the default is 50."`
}

// A logLine is an event as a model reads it: without the agent's own line.
type logLine struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"ts"`
	Kind jobs.Kind `json:"kind"`
	Data any       `json:"data,omitempty"`  // the payload, or the beginning of its text
	Of   int       `json:"bytes,omitempty"` // of the whole payload, if data is its beginning
}

func lineOf(e jobs.Event) logLine {
	l := logLine{Seq: e.Seq, Time: e.Time, Kind: e.Kind}
	switch {
	case len(e.Data) > mostData:
		l.Data, l.Of = strings.ToValidUTF8(string(e.Data[:mostData]), ""), len(e.Data)
	case len(e.Data) > 0:
		l.Data = e.Data
	}
	return l
}

func (t *tools) log(ctx context.Context, _ *mcp.CallToolRequest, in logArgs) (any, error) {
	var after uint64
	if in.After != nil {
		after = *in.After
	}
	window := logWindow{most: within(in.Limit, fewEvents, mostEvents), first: in.After != nil, lines: []logLine{}}
	for event, err := range t.c.Events(ctx, in.ID, after) {
		if err != nil {
			return nil, err
		}
		if !window.take(event) {
			break
		}
	}
	return map[string]any{"events": window.lines}, nil
}

// A logWindow keeps the first or the last events of a log, as many as an answer has room for.
type logWindow struct {
	most  int
	first bool
	lines []logLine
	sizes []int
	bytes int
}

// take takes the next event and reports whether it wants another one.
func (w *logWindow) take(e jobs.Event) bool {
	size := min(len(e.Data), mostData)
	w.lines, w.sizes, w.bytes = append(w.lines, lineOf(e)), append(w.sizes, size), w.bytes+size
	full := func() bool { return len(w.lines) > w.most || w.bytes > mostText }
	if w.first {
		return !full() && len(w.lines) < w.most
	}
	for full() {
		w.bytes -= w.sizes[0]
		w.lines, w.sizes = w.lines[1:], w.sizes[1:]
	}
	return true
}

type diffArgs struct {
	ID     string `json:"id" jsonschema:"The job's id, or what only it begins or ends with."`
	Offset int64  `json:"offset,omitempty" jsonschema:"The byte to begin at; the next of the answer before."`
}

// A part is one answer's worth of a patch.
type part struct {
	Patch string `json:"patch"`
	Next  int64  `json:"next,omitempty"` // there if the patch goes on: the offset of the rest
}

func (t *tools) diff(ctx context.Context, _ *mcp.CallToolRequest, in diffArgs) (_ any, err error) {
	if in.Offset < 0 {
		return nil, invalid("offset", "is negative")
	}
	patch, err := t.c.Patch(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, patch.Close()) }()
	if _, err := io.CopyN(io.Discard, patch, in.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(patch, mostText+1))
	if err != nil {
		return nil, err
	}
	out := part{}
	if len(text) > mostText {
		text = wholeLines(text[:mostText])
		out.Next = in.Offset + int64(len(text))
	}
	out.Patch = strings.ToValidUTF8(string(text), "\uFFFD")
	return out, nil
}

// wholeLines cuts a text behind its last line's end; one without ends behind its last
// whole character.
func wholeLines(text []byte) []byte {
	if end := bytes.LastIndexByte(text, '\n'); end >= 0 {
		return text[:end+1]
	}
	for cut := 1; cut < utf8.UTFMax && cut < len(text); cut++ {
		if tail := text[len(text)-cut:]; utf8.RuneStart(tail[0]) && !utf8.FullRune(tail) {
			return text[:len(text)-cut]
		}
	}
	return text
}

type batchArgs struct {
	Batch string `json:"batch" jsonschema:"The batch's name."`
}

func (t *tools) batch(ctx context.Context, _ *mcp.CallToolRequest, in batchArgs) (any, error) {
	return t.c.Batches().Get(ctx, in.Batch)
}

type pageArgs struct {
	After string `json:"after,omitempty" jsonschema:"The next of the page before."`
}

func (t *tools) queues(ctx context.Context, _ *mcp.CallToolRequest, in pageArgs) (any, error) {
	return client.Ask(ctx, t.c, operation.QueueList, operation.PageRequest{After: in.After, Limit: mostListed})
}

// invalid is the error of an argument that cannot be used.
func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}
