package agenttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// completionsBody is a request of OpenAI's Chat Completions API, which most other providers
// offer, too.
type completionsBody struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Effort  string `json:"reasoning_effort"`
	Options struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// thanks is what Qwen Code has the model answer to what it says of the directory, before the
// user's first prompt. The model has never said it.
const thanks = "Got it. Thanks for the context!"

func (b completionsBody) request() Request {
	req := Request{Model: b.Model, Effort: b.Effort, Stream: b.Stream, usage: b.Options.Usage}
	for _, t := range b.Tools {
		req.Tools = append(req.Tools, t.Function.Name)
	}
	for _, m := range b.Messages {
		switch m.Role {
		case "system", "developer":
			req.System += text(m.Content)
		case "assistant":
			if text(m.Content) != thanks {
				req.Turn++
			}
		case "tool":
			req.Last, req.Returned = text(m.Content), true
		default:
			req.Last, req.Returned = text(m.Content), false
			req.Images = append(req.Images, images(m.Content)...)
			// Agents put text of their own before the user's.
			req.First += req.Last
		}
	}
	return req
}

// complete sends an answer as the Chat Completions API does.
func (a *answer) complete() {
	calls := []object{}
	for i, c := range a.reply.Calls {
		calls = append(calls, object{
			"index": i, "id": fmt.Sprintf("call_%d_%d", a.id, i), "type": "function", "function": object{"name": c.Name, "arguments": encoded(c.Input)},
		})
	}
	end := "stop"
	if len(calls) > 0 {
		end = "tool_calls"
	}
	usage := object{"prompt_tokens": a.reply.Input, "completion_tokens": a.reply.Output, "total_tokens": a.reply.Input + a.reply.Output}
	if !a.req.Stream {
		if a.reply.Drop {
			panic(http.ErrAbortHandler)
		}
		if a.reply.Hang {
			return
		}
		message := object{"role": "assistant", "content": a.reply.Text}
		if len(calls) > 0 {
			message["tool_calls"] = calls
		}
		a.w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(a.w).Encode(a.completion("chat.completion", object{"message": message, "finish_reason": end}, usage)) // the agent may have gone
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	if a.reply.Text != "" || len(calls) == 0 {
		a.chunk(object{"role": "assistant", "content": a.reply.Text}, nil)
	}
	if a.reply.Drop {
		panic(http.ErrAbortHandler)
	}
	if a.reply.Hang {
		return
	}
	if len(calls) > 0 {
		a.chunk(object{"role": "assistant", "tool_calls": calls}, nil)
	}
	a.chunk(object{}, end)
	if a.req.usage {
		last := a.completion("chat.completion.chunk", nil, usage)
		last["choices"] = []object{}
		a.data(last, "\n\n")
	}
	_, _ = io.WriteString(a.w, "data: [DONE]\n\n") // the agent may have gone
}

func (a *answer) chunk(delta object, end any) {
	a.data(a.completion("chat.completion.chunk", object{"delta": delta, "finish_reason": end}, nil), "\n\n")
}

func (a *answer) completion(kind string, choice, usage object) object {
	c := object{"id": fmt.Sprintf("chatcmpl-%d", a.id), "object": kind, "created": 1, "model": a.req.Model}
	if choice != nil {
		choice["index"] = 0
		c["choices"] = []object{choice}
	}
	if usage != nil {
		c["usage"] = usage
	}
	return c
}
