package tokencount

import (
	"encoding/json"
	"strings"
)

// An api is how the answers of one provider are read.
type api struct {
	// read returns what one piece reports: an event of a stream, or a whole answer. It
	// returns false for a piece that it does not know.
	read func(data []byte) (report, bool)
}

var apis = map[string]api{"anthropic": {readAnthropic}, "openai": {readOpenAI}, "google": {readGoogle}}

// report is what a piece of an answer reports. Counts are totals of the answer; missing ones
// keep their value.
type report struct {
	model, tier                                     string
	input, output, cacheRead, cacheWrite, cacheHour *int64
	text                                            int64 // bytes of text in the piece
	final                                           bool
}

// A block is a part of a message of Anthropic's, or what is added to one.
type block struct {
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Partial  string          `json:"partial_json"`
	Input    json.RawMessage `json:"input"`
}

func (b block) size() int64 {
	n := len(b.Text) + len(b.Thinking) + len(b.Partial)
	if string(b.Input) != "{}" {
		n += len(b.Input)
	}
	return int64(n)
}

type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Creation   struct {
		Hour *int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Tier  string `json:"service_tier"`
	Speed string `json:"speed"`
}

// readAnthropic decodes message_start for the input, message_delta for the output, pieces
// of text, and a message that is not streamed.
func readAnthropic(data []byte) (report, bool) {
	type message struct {
		Model   string          `json:"model"`
		Usage   *anthropicUsage `json:"usage"`
		Content []block         `json:"content"`
	}
	var e struct {
		message
		Type    string  `json:"type"`
		Message message `json:"message"`
		Block   block   `json:"content_block"`
		Delta   block   `json:"delta"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // not what the provider sends; the usage is estimated then
	}
	r, m := report{}, message{}
	switch e.Type {
	case "message_start":
		m = e.Message
	case "message_delta":
		m.Usage, r.final = e.Usage, e.Usage != nil
	case "message":
		m, r.final = e.message, e.Usage != nil
	case "content_block_start":
		r.text = e.Block.size()
	case "content_block_delta":
		r.text = e.Delta.size()
	case "content_block_stop", "message_stop", "ping", "error":
	default:
		return report{}, false
	}
	for _, b := range m.Content {
		r.text += b.size()
	}
	r.model = m.Model
	if u := m.Usage; u != nil {
		r.input, r.output, r.cacheRead, r.cacheWrite, r.cacheHour = u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Creation.Hour
		if r.tier = u.Tier; u.Speed == "fast" {
			r.tier = u.Speed
		}
	}
	return r, true
}

// openaiUsage is of both APIs of OpenAI's, which name the same things differently. The
// input includes what was read from the cache.
type openaiUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	PromptDetails struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

func (r *report) openai(u *openaiUsage) {
	if u == nil {
		return
	}
	cached, written := max(u.Details.Cached, u.PromptDetails.Cached, 0), max(u.Details.Written, u.PromptDetails.Written, 0)
	input, output := max(u.Input, u.Prompt)-cached-written, max(u.Output, u.Completion)
	r.input, r.output, r.cacheRead, r.cacheWrite, r.final = &input, &output, &cached, &written, true
}

// readOpenAI decodes events and whole answers of the responses and of the chat completions.
func readOpenAI(data []byte) (report, bool) {
	type response struct {
		Object string       `json:"object"`
		Model  string       `json:"model"`
		Tier   string       `json:"service_tier"`
		Usage  *openaiUsage `json:"usage"`
		Output []struct {
			Arguments string  `json:"arguments"`
			Input     string  `json:"input"`
			Content   []block `json:"content"`
			Summary   []block `json:"summary"`
		} `json:"output"`
	}
	var e struct {
		response
		Type     string          `json:"type"`
		Delta    json.RawMessage `json:"delta"`
		Response response        `json:"response"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // as above
	}
	if strings.HasPrefix(e.Object, "chat.completion") {
		return readChat(data)
	}
	m, r := e.Response, report{}
	switch {
	case e.Object == "response":
		m = e.response
		for _, item := range m.Output {
			r.text += int64(len(item.Arguments) + len(item.Input))
			for _, b := range append(item.Content, item.Summary...) {
				r.text += b.size()
			}
		}
	case strings.HasSuffix(e.Type, ".delta"):
		r.text = int64(max(len(e.Delta)-2, 0))
	case e.Type == "error" || strings.HasPrefix(e.Type, "response."):
	default:
		return report{}, false
	}
	r.model, r.tier = m.Model, m.Tier
	r.openai(m.Usage)
	return r, true
}

func readChat(data []byte) (report, bool) {
	type message struct {
		Content   json.RawMessage `json:"content"`
		Refusal   string          `json:"refusal"`
		Reasoning string          `json:"reasoning_content"`
		Calls     []struct {
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	var e struct {
		Model   string       `json:"model"`
		Tier    string       `json:"service_tier"`
		Usage   *openaiUsage `json:"usage"`
		Choices []struct {
			Message message `json:"message"`
			Delta   message `json:"delta"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // as above
	}
	r := report{model: e.Model, tier: e.Tier}
	for _, choice := range e.Choices {
		for _, m := range []message{choice.Message, choice.Delta} {
			if len(m.Content) > 2 && string(m.Content) != "null" {
				r.text += int64(len(m.Content) - 2)
			}
			r.text += int64(len(m.Refusal) + len(m.Reasoning))
			for _, call := range m.Calls {
				r.text += int64(len(call.Function.Name) + len(call.Function.Arguments))
			}
		}
	}
	r.openai(e.Usage)
	return r, true
}

// readGoogle decodes a piece of a stream, or an answer that is not streamed: each
// reports all usage so far. Its input includes what was read from the cache, and its
// output does not include thoughts.
func readGoogle(data []byte) (report, bool) {
	var e struct {
		Model      string `json:"modelVersion"`
		Candidates []struct {
			Finish  string `json:"finishReason"`
			Content struct {
				Parts []struct {
					Text string `json:"text"`
					Call struct {
						Args json.RawMessage `json:"args"`
					} `json:"functionCall"`
				} `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
		Feedback struct {
			Block string `json:"blockReason"`
		} `json:"promptFeedback"`
		Usage *struct {
			Prompt     int64  `json:"promptTokenCount"`
			Tools      int64  `json:"toolUsePromptTokenCount"`
			Cached     int64  `json:"cachedContentTokenCount"`
			Candidates int64  `json:"candidatesTokenCount"`
			Thoughts   int64  `json:"thoughtsTokenCount"`
			Tier       string `json:"serviceTier"`
		} `json:"usageMetadata"`
	}
	if json.Unmarshal(data, &e) != nil {
		return report{}, false // as above
	}
	r, ended := report{model: e.Model}, e.Feedback.Block != ""
	for _, c := range e.Candidates {
		ended = ended || c.Finish != ""
		for _, part := range c.Content.Parts {
			r.text += int64(len(part.Text) + len(part.Call.Args))
		}
	}
	if u := e.Usage; u != nil {
		input, output := u.Prompt+u.Tools-u.Cached, u.Candidates+u.Thoughts
		r.input, r.output, r.cacheRead, r.tier, r.final = &input, &output, &u.Cached, strings.ToLower(u.Tier), ended
	}
	return r, true
}
