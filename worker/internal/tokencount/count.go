// Package tokencount counts the tokens of calls of model APIs, while their answers pass: as
// the provider reports them, and no less than what was seen.
//
// A report that cannot be true is replaced by an estimate: one with less than a token for
// each sixteen bytes of text that were sent or that came. So is a missing report, because
// an answer that breaks off, or that nobody waits for, costs the same. Estimates are upward:
// a token for each three bytes, at least one for each piece of a stream, and what the
// model may have thought meanwhile without showing it. What they cannot see is whether a
// provider reports few tokens more than there were.
package tokencount

import (
	"bytes"
	"math"
	"time"

	"github.com/penstock-run/penstock/worker/pricing"
)

// maxCounted is the longest piece of an answer that is searched for usage: a line of a
// stream, or a whole answer.
const maxCounted = 4 << 20

// Bytes for a token: the most that a report is believed, and what an estimate takes.
const (
	believed  = 16
	estimated = 3
)

// thought is how many tokens a model may think in a second, at the most.
const thought = 200

// A Request is what the count of an answer needs to know of its request.
type Request struct {
	API string // "anthropic", "openai" or "google"
	// Text is how many bytes of text it has, without pictures and other files.
	Text int64
	// Most is how many tokens its answer has at most.
	Most int64
	// Tier is the service tier that it asks for; empty is the standard one.
	Tier string
	// Regional: it asks for an answer from one region.
	Regional bool
	// Free: what it asks for costs nothing, or it was refused. Then nothing is estimated.
	Free bool
}

// A Counter reads the usage from one answer, while the answer passes.
type Counter struct {
	request Request
	api     api
	stream  bool // an event stream; else one JSON object

	line    []byte // the line, or the answer, as far as it has arrived
	dropped int64  // how many bytes of it are not kept
	pieces  int64  // of text that were streamed
	text    int64  // bytes of all text that came
	guessed int64  // tokens of pieces that could not be read
	final   bool   // the final usage was seen
	tokens  pricing.Tokens
	model   string
	kind    string // of the error that it is, or ends with
}

// New returns the counter of an answer.
func New(r Request, stream bool) *Counter {
	return &Counter{request: r, api: apis[r.API], stream: stream, tokens: pricing.Tokens{Tier: r.Tier, Regional: r.Regional}}
}

// Tokens returns what is counted so far. No count falls.
func (c *Counter) Tokens() pricing.Tokens { return c.tokens }

// Model returns the model that the answer names; empty: none so far.
func (c *Counter) Model() string { return c.model }

// Kind returns the kind of the error that the answer is, or ends with; empty: none.
func (c *Counter) Kind() string { return c.kind }

// Write counts the next piece of the answer.
func (c *Counter) Write(p []byte) {
	for c.stream {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		c.keep(p[:end])
		c.readLine()
		p = p[end+1:]
	}
	c.keep(p)
}

func (c *Counter) keep(p []byte) {
	room := min(len(p), maxCounted-len(c.line))
	c.line = append(c.line, p[:room]...)
	c.dropped += int64(len(p) - room)
}

func (c *Counter) readLine() {
	data, isData := bytes.CutPrefix(c.line, []byte("data:"))
	data = bytes.TrimSpace(data)
	switch {
	case !isData || len(data) == 0 || string(data) == "[DONE]":
	case c.dropped > 0:
		c.guessed += (int64(len(data)) + c.dropped) / estimated
	default:
		c.take(data, true)
	}
	c.line, c.dropped = c.line[:0], 0
}

// take reads one piece: an event of a stream, or the whole answer.
func (c *Counter) take(data []byte, piece bool) {
	kind, failed := readFailure(data, piece)
	if failed {
		c.kind = kind
	}
	r, ok := c.api.read(data)
	switch {
	case !ok && failed:
		return
	case !ok:
		// About 85 bytes frame a piece of text.
		c.guessed += max(1, (int64(len(data))-85)/estimated)
		return
	case r.text > 0:
		c.pieces, c.text = c.pieces+1, c.text+r.text
	}
	if r.model != "" {
		c.model = r.model
	}
	c.tier(r.tier)
	raise(&c.tokens.Input, r.input)
	raise(&c.tokens.Output, r.output)
	raise(&c.tokens.CacheRead, r.cacheRead)
	raise(&c.tokens.CacheWrite, r.cacheWrite)
	raise(&c.tokens.CacheWriteHour, r.cacheHour)
	c.final = c.final || r.final
}

// tier takes over the tier that the provider reports. A cheaper one counts only if the
// request asks for it.
func (c *Counter) tier(reported string) {
	cheap := reported == pricing.Batch || reported == pricing.Flex
	if reported != "" && (!cheap || reported == c.request.Tier) {
		c.tokens.Tier = reported
	}
}

func raise(to *int64, n *int64) {
	if n != nil && *n > *to && *n < math.MaxInt32 {
		*to = *n
	}
}

// Finish ends the count of an answer that took so long, until its last piece or until
// nobody waited for it. What the provider did not report, and what it reported falsely, is
// estimated, unless all that came was an error.
func (c *Counter) Finish(took time.Duration) {
	switch {
	case c.stream:
		if len(c.line) > 0 {
			c.readLine() // of a stream that was cut
		}
	case c.dropped > 0:
		c.guessed += (int64(len(c.line)) + c.dropped) / estimated
	case len(c.line) > 0:
		c.take(c.line, false)
		c.final = c.final || c.kind != ""
	}
	prompt := c.tokens.Input + c.tokens.CacheRead + c.tokens.CacheWrite
	if c.request.Free || c.kind != "" && prompt+c.tokens.Output+c.text+c.guessed == 0 {
		return
	}
	if prompt < c.request.Text/believed || prompt == 0 {
		c.tokens.Input += c.request.Text/estimated + 1 - prompt
	}
	seen := max(c.pieces, (c.text+estimated-1)/estimated) + c.guessed
	switch {
	case !c.final:
		hidden := min(int64(took.Seconds()*thought), c.request.Most)
		c.tokens.Output = max(c.tokens.Output, seen, hidden)
	case c.tokens.Output < c.text/believed+c.guessed/believed:
		c.tokens.Output = seen
	}
}
