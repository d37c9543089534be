package agenttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// responsesBody is a request of OpenAI's Responses API.
type responsesBody struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	System string `json:"instructions"`
	Input  []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
	} `json:"input"`
	Tools []struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tools"`
	Reasoning struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
}

// request counts the messages of the model: neighbouring items of it are one turn.
func (b responsesBody) request() Request {
	req := Request{Model: b.Model, Effort: b.Reasoning.Effort, Stream: b.Stream, System: b.System}
	for _, t := range b.Tools {
		if t.Name == "" {
			t.Name = t.Type
		}
		req.Tools = append(req.Tools, t.Name)
	}
	spoke := false
	for _, item := range b.Input {
		switch {
		case item.Type == "function_call_output", item.Type == "custom_tool_call_output":
			req.Last, req.Returned, spoke = text(item.Output), true, false
		case item.Role == "developer":
			req.System += text(item.Content)
		case item.Role == "user":
			req.Last, req.Returned, spoke = text(item.Content), false, false
			req.Images = append(req.Images, images(item.Content)...)
			// Agents put text of their own before the user's.
			req.First += req.Last
		case item.Role == "" || item.Role == "assistant":
			if !spoke {
				req.Turn++
			}
			spoke = true
		}
	}
	return req
}

// respond sends an answer as the Responses API does.
func (a *answer) respond() {
	a.w.Header().Set("Content-Type", "text/event-stream")
	id := fmt.Sprintf("resp_%d", a.id)
	a.event("response.created", object{"response": object{"id": id, "model": a.req.Model}})
	if a.reply.Text != "" || len(a.reply.Calls) == 0 {
		a.event("response.output_item.done", object{"item": object{
			"type": "message", "role": "assistant", "id": fmt.Sprintf("msg_%d", a.id),
			"content": []object{{"type": "output_text", "text": a.reply.Text}},
		}})
	}
	if a.reply.Drop {
		panic(http.ErrAbortHandler)
	}
	if a.reply.Hang {
		return
	}
	for i, c := range a.reply.Calls {
		item := object{"type": "function_call", "name": c.Name, "arguments": encoded(c.Input), "call_id": fmt.Sprintf("call_%d_%d", a.id, i)}
		if space, name, ok := strings.Cut(c.Name, "/"); ok { // a tool of a server
			item["namespace"], item["name"] = space, name
		}
		a.event("response.output_item.done", object{"item": item})
	}
	a.event("response.completed", object{"response": object{
		"id": id, "model": a.req.Model, "usage": object{
			"input_tokens": a.reply.Input, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": a.reply.Output, "output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens": a.reply.Input + a.reply.Output,
		},
	}})
}
