package agenttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// generateBody is a request of Google's Gemini API. The path has the model.
type generateBody struct {
	System struct {
		Parts []struct {
			Text string `json:"text"`
		} `json:"parts"`
	} `json:"systemInstruction"`
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
			Text  string `json:"text"`
			Image struct {
				Type string `json:"mimeType"`
				Data string `json:"data"`
			} `json:"inlineData"`
			Response *struct {
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		Functions []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

func (b generateBody) request() Request {
	var req Request
	for _, p := range b.System.Parts {
		req.System += p.Text
	}
	for _, t := range b.Tools {
		for _, f := range t.Functions {
			req.Tools = append(req.Tools, f.Name)
		}
	}
	for _, c := range b.Contents {
		if c.Role == "model" {
			req.Turn++
			continue
		}
		req.Last, req.Returned = "", false
		for _, p := range c.Parts {
			req.Last += p.Text
			if p.Image.Data != "" {
				req.Images = append(req.Images, "data:"+p.Image.Type+";base64,"+p.Image.Data)
			}
			if p.Response != nil {
				req.Last, req.Returned = req.Last+string(p.Response.Response), true
			}
		}
		// The agent puts text of its own before the user's.
		req.First += req.Last
	}
	return req
}

// generates returns the model and the call in a path of the Gemini API.
func generates(path string) (model, call string) {
	rest, ok := strings.CutPrefix(path, "/v1beta/models/")
	if !ok {
		return "", ""
	}
	model, call, _ = strings.Cut(rest, ":")
	return model, call
}

// generate sends an answer as the Gemini API does: each piece of a stream has the usage
// so far, and the last one says why it ended.
func (a *answer) generate() {
	var parts []object
	if a.reply.Text != "" || len(a.reply.Calls) == 0 {
		parts = append(parts, object{"text": a.reply.Text})
	}
	for _, c := range a.reply.Calls {
		parts = append(parts, object{"functionCall": object{"name": c.Name, "args": c.Input}})
	}
	if !a.req.Stream {
		a.w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(a.w).Encode(a.generated(parts, true)) // the agent may have gone
		return
	}
	a.w.Header().Set("Content-Type", "text/event-stream")
	for i, part := range parts {
		last := i == len(parts)-1 && !a.reply.Drop && !a.reply.Hang
		a.data(a.generated([]object{part}, last), "\r\n\r\n")
	}
	if a.reply.Drop {
		panic(http.ErrAbortHandler)
	}
}

func (a *answer) generated(parts []object, last bool) object {
	candidate := object{"index": 0, "content": object{"role": "model", "parts": parts}}
	if last {
		candidate["finishReason"] = "STOP"
	}
	return object{
		"candidates": []object{candidate}, "modelVersion": a.req.Model, "responseId": fmt.Sprintf("resp_%d", a.id),
		"usageMetadata": object{
			"promptTokenCount": a.reply.Input, "candidatesTokenCount": a.reply.Output,
			"totalTokenCount": a.reply.Input + a.reply.Output,
		},
	}
}

// failGenerate sends an error as the Gemini API does. Its kind is the status as a name:
// "RESOURCE_EXHAUSTED". When to try again is in the body, in seconds, and in no header.
func failGenerate(w http.ResponseWriter, r Reply) {
	told := object{"code": r.Status, "message": "scripted", "status": r.Error}
	if r.After != "" {
		told["details"] = []object{
			{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []object{{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}}},
			{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": r.After + "s"},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(object{"error": told}) // as above
}
