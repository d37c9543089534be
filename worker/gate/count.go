package gate

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/penstock-run/penstock/jobs"
)

// maxCounted is the longest piece of an answer that is searched for usage: a line of a
// stream, or a whole answer.
const maxCounted = 4 << 20

// A counter reads the usage from one answer, while the answer passes.
type counter struct {
	read   func(data []byte) (report, bool) // the provider's
	mark   []byte                           // of a piece that reports usage; the provider's
	stream bool                             // an event stream; else one JSON object
	sent   int64                            // bytes of the request

	line    []byte // the line, or the answer, as far as it has arrived
	dropped int64  // how many bytes of it are not kept
	text    int64  // tokens of the text that was streamed, estimated
	final   bool   // the final usage was seen
	usage   jobs.Usage
	model   string
	kind    string // of the error that it is, or ends with
}

// report is the usage that a piece of an answer reports. Counts are totals of the answer;
// missing ones keep their value.
type report struct {
	model                                string
	input, output, cacheRead, cacheWrite *int64
	final                                bool
}

func (c *counter) write(p []byte) {
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

func (c *counter) keep(p []byte) {
	room := min(len(p), maxCounted-len(c.line))
	c.line = append(c.line, p[:room]...)
	c.dropped += int64(len(p) - room)
}

func (c *counter) readLine() {
	data, isData := bytes.CutPrefix(c.line, []byte("data:"))
	switch {
	case !isData:
	case c.dropped == 0 && len(data) < 8<<10 && bytes.Contains(data, []byte(`"error"`)) && c.failed(data):
	case bytes.Contains(data, c.mark) && c.dropped == 0:
		c.take(data)
	default:
		// About 85 bytes frame a piece of text; four bytes of text are a token.
		c.text += max(1, (int64(len(data))+c.dropped-85)/4)
	}
	c.line, c.dropped = c.line[:0], 0
}

// failed handles a piece of a stream that is the error that ends it.
func (c *counter) failed(data []byte) bool {
	var e struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(data, &e) != nil || e.Type != "error" && e.Type != "response.failed" {
		return false
	}
	c.kind = readFailure(data)
	return true
}

func (c *counter) take(data []byte) {
	t, ok := c.read(data)
	if !ok {
		return
	}
	if t.model != "" {
		c.model = t.model
	}
	raise(&c.usage.Input, t.input)
	raise(&c.usage.Output, t.output)
	raise(&c.usage.CacheRead, t.cacheRead)
	raise(&c.usage.CacheWrite, t.cacheWrite)
	c.final = c.final || t.final
}

func raise(to *int64, n *int64) {
	if n != nil && *n > *to && *n < math.MaxInt32 {
		*to = *n
	}
}

// finish ends the count. The usage of an answer that did not reach its final report is
// estimated: the provider charges for it, and an agent that hangs up early must not get
// it for nothing.
func (c *counter) finish() {
	switch {
	case !c.stream && c.dropped == 0:
		c.take(c.line)
		c.kind = readFailure(c.line)
	case !c.stream:
		c.usage.Output = (int64(len(c.line)) + c.dropped) / 4
	case !c.final && c.text > 0:
		c.usage.Output = max(c.usage.Output, c.text)
		if c.usage.Input+c.usage.CacheRead+c.usage.CacheWrite == 0 {
			c.usage.Input = c.sent / 4 // a provider that reports all usage at the end
		}
	}
}

type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// readAnthropic decodes the events that report usage: message_start for the input,
// message_delta for the output, and a message that is not streamed.
func readAnthropic(data []byte) (report, bool) {
	var e struct {
		Type    string          `json:"type"`
		Model   string          `json:"model"`
		Usage   *anthropicUsage `json:"usage"`
		Message struct {
			Model string          `json:"model"`
			Usage *anthropicUsage `json:"usage"`
		} `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // not what the provider sends; the usage is estimated then
	}
	t, usage := report{model: e.Model}, e.Usage
	switch e.Type {
	case "message_start":
		t.model, usage = e.Message.Model, e.Message.Usage
	case "message_delta", "message":
		t.final = usage != nil
	default:
		return report{}, false
	}
	if usage != nil {
		t.input, t.output, t.cacheRead, t.cacheWrite = usage.Input, usage.Output, usage.CacheRead, usage.CacheWrite
	}
	return t, true
}

// readOpenAI decodes the event that closes an answer, and an answer that is not
// streamed. Its input includes what was read from the cache.
func readOpenAI(data []byte) (report, bool) {
	type response struct {
		Object string `json:"object"`
		Model  string `json:"model"`
		Usage  *struct {
			Input   int64 `json:"input_tokens"`
			Output  int64 `json:"output_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		} `json:"usage"`
	}
	var e struct {
		response
		Response response `json:"response"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // as above
	}
	r := e.Response
	if e.Object == "response" {
		r = e.response
	}
	if r.Usage == nil {
		return report{model: r.Model}, true
	}
	input := r.Usage.Input - r.Usage.Details.Cached
	return report{model: r.Model, input: &input, output: &r.Usage.Output, cacheRead: &r.Usage.Details.Cached, final: true}, true
}

// readGoogle decodes a piece of a stream, or an answer that is not streamed: each
// reports all usage so far. Its input includes what was read from the cache, and its
// output does not include thoughts.
func readGoogle(data []byte) (report, bool) {
	var e struct {
		Model      string `json:"modelVersion"`
		Candidates []struct {
			Finish string `json:"finishReason"`
		} `json:"candidates"`
		Feedback struct {
			Block string `json:"blockReason"`
		} `json:"promptFeedback"`
		Usage *struct {
			Prompt     int64 `json:"promptTokenCount"`
			Tools      int64 `json:"toolUsePromptTokenCount"`
			Cached     int64 `json:"cachedContentTokenCount"`
			Candidates int64 `json:"candidatesTokenCount"`
			Thoughts   int64 `json:"thoughtsTokenCount"`
		} `json:"usageMetadata"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // as above
	}
	t := report{model: e.Model, final: e.Feedback.Block != ""}
	for _, c := range e.Candidates {
		t.final = t.final || c.Finish != ""
	}
	if u := e.Usage; u != nil {
		input, output := u.Prompt+u.Tools-u.Cached, u.Candidates+u.Thoughts
		t.input, t.output, t.cacheRead = &input, &output, &u.Cached
	}
	return t, true
}
