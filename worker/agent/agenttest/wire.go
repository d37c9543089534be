package agenttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// messagesBody is a request of the Messages API.
type messagesBody struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	System   json.RawMessage `json:"system"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Output struct {
		Effort string `json:"effort"`
	} `json:"output_config"`
}

func (b messagesBody) request() Request {
	req := Request{Model: b.Model, Effort: b.Output.Effort, Stream: b.Stream, System: text(b.System)}
	for _, t := range b.Tools {
		req.Tools = append(req.Tools, t.Name)
	}
	for _, m := range b.Messages {
		if m.Role == "assistant" {
			req.Turn++
			continue
		}
		req.Last, req.Returned = text(m.Content), bytes.Contains(m.Content, []byte(`"tool_result"`))
		req.Images = append(req.Images, images(m.Content)...)
		if req.First == "" {
			req.First = req.Last
		}
	}
	return req
}

// text is all the text in a content, including that of tools' results.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var blocks []struct {
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	var b strings.Builder
	for _, block := range blocks {
		b.WriteString(block.Text)
		if block.Content != nil {
			b.WriteString(text(block.Content))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// images are all images in a content of either provider, as data URLs.
func images(content json.RawMessage) (urls []string) {
	var blocks []struct {
		Source struct { // of Anthropic
			Type string `json:"media_type"`
			Data string `json:"data"`
		} `json:"source"`
		URL json.RawMessage `json:"image_url"` // of OpenAI: the URL, or an object with it
	}
	if json.Unmarshal(content, &blocks) != nil {
		return nil
	}
	for _, b := range blocks {
		switch {
		case b.Source.Data != "":
			urls = append(urls, "data:"+b.Source.Type+";base64,"+b.Source.Data)
		case b.URL != nil:
			var url struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(b.URL, &url.URL) != nil && json.Unmarshal(b.URL, &url) != nil {
				continue
			}
			urls = append(urls, url.URL)
		}
	}
	return urls
}

// An answer is one message that is being sent to the agent.
type answer struct {
	w     http.ResponseWriter
	reply Reply
	req   Request
	id    int64
}

type object = map[string]any

func (a *answer) send() {
	if !a.req.Stream {
		if a.reply.Drop {
			panic(http.ErrAbortHandler)
		}
		if a.reply.Hang {
			return
		}
		a.w.Header().Set("Content-Type", "application/json")
		m := a.message(a.reply.Output)
		m["content"], m["stop_reason"] = a.blocks(), a.stopReason()
		_ = json.NewEncoder(a.w).Encode(m) // the agent may have gone
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.event("message_start", object{"message": a.message(1)})
	for i, block := range a.blocks() {
		a.block(i, block)
		if a.reply.Drop {
			panic(http.ErrAbortHandler)
		}
	}
	if a.reply.Hang {
		return
	}
	a.event("message_delta", object{
		"delta": object{"stop_reason": a.stopReason(), "stop_sequence": nil},
		"usage": object{"output_tokens": a.reply.Output},
	})
	a.event("message_stop", object{})
}

// block streams a block as the provider does: its content comes after it.
func (a *answer) block(i int, block object) {
	empty, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": block["text"]}
	if block["type"] == "tool_use" {
		empty = object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": encoded(block["input"])}
	}
	a.event("content_block_start", object{"index": i, "content_block": empty})
	a.event("content_block_delta", object{"index": i, "delta": delta})
	a.event("content_block_stop", object{"index": i})
}

func (a *answer) blocks() []object {
	var out []object
	if a.reply.Text != "" || len(a.reply.Calls) == 0 {
		out = append(out, object{"type": "text", "text": a.reply.Text})
	}
	for i, c := range a.reply.Calls {
		out = append(out, object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", a.id, i), "name": c.Name, "input": c.Input})
	}
	return out
}

func (a *answer) stopReason() string {
	if len(a.reply.Calls) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (a *answer) message(output int64) object {
	return object{
		"id": fmt.Sprintf("msg_%d", a.id), "type": "message", "role": "assistant", "model": a.req.Model,
		"content": []object{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": a.reply.Input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output},
	}
}

func (a *answer) event(kind string, data object) {
	data["type"] = kind
	_, _ = io.WriteString(a.w, "event: "+kind+"\n") // the agent may have gone
	a.data(data, "\n\n")
}

// encoded is a value of a script as JSON.
func encoded(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // the test's own values
	}
	return string(out)
}

// data sends an event of a stream that has no name, or the rest of one that has.
func (a *answer) data(data object, end string) {
	_, _ = io.WriteString(a.w, "data: "+encoded(data)+end) // the agent may have gone
	_ = http.NewResponseController(a.w).Flush()            // as above
}
