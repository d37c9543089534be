package inspection

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What a request says of its own price is read where the provider reads it.
func TestInquiry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules Rules
		body  string
		want  Inquiry
	}{
		{"nothing", Anthropic, `{"model":"m"}`, Inquiry{Model: "m", Text: 1}},
		{"tokens", Anthropic, `{"model":"m","max_tokens":32000,"n":9}`, Inquiry{Model: "m", Output: 32000, Text: 1}},
		{"in a tool", Anthropic, `{"model":"m","tools":[{"max_tokens":5,"input_schema":{"max_tokens":6,"a":"xyz"}}]}`, Inquiry{Model: "m", Text: 15}},
		{"less than nothing", Anthropic, `{"model":"m","max_tokens":-5}`, Inquiry{Model: "m", Text: 1}},
		{"very many", Anthropic, `{"model":"m","max_tokens":1e300}`, Inquiry{Model: "m", Output: 1 << 40, Text: 1}},
		{"fast", Anthropic, `{"model":"m","service_tier":"auto","speed":"fast","inference_geo":"us"}`, Inquiry{Model: "m", Tier: "fast", Tiers: []string{"auto", "fast"}, Geos: []string{"us"}, Regional: true, Text: 11}},
		{"fast first", Anthropic, `{"model":"m","speed":"fast","service_tier":"auto","inference_geo":"global"}`, Inquiry{Model: "m", Tier: "fast", Tiers: []string{"fast", "auto"}, Geos: []string{"global"}, Text: 15}},
		{"a picture", Anthropic, `{"model":"m","messages":[{"source":{"type":"base64","data":"AAAA"}}]}`, Inquiry{Model: "m", Text: 7}},
		{"prose as a file", Anthropic, `{"model":"m","messages":[{"source":{"type":"text","data":"a b"}}]}`, Inquiry{Model: "m", Text: 8}},
		{"completions", OpenAI, `{"model":"m","max_completion_tokens":7,"max_tokens":5,"n":3,"service_tier":"priority"}`, Inquiry{Model: "m", Output: 7, Choices: 3, Tier: "priority", Tiers: []string{"priority"}, Text: 9}},
		{"Google", Google, `{"model":"models/m","generationConfig":{"maxOutputTokens":7,"candidate_count":2},"serviceTier":"flex"}`, Inquiry{Model: "models/m", Output: 7, Choices: 2, Tier: "flex", Tiers: []string{"flex"}, Text: 12}},
	} {
		got, err := tt.rules.Inspect([]byte(tt.body), "", false)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, err %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte(`{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	f.Add([]byte(`{"model":"0"} }`))
	f.Add([]byte(`{"model":"m","tools":[{"type":"web_search_1"}],"a":{"b":[{"source":{"type":"url"}}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := Anthropic.Inspect(in, "", false); err != nil {
			return
		}
		// What passes means the same to a reader that takes the last of two
		// names and to one that takes the first: there are no two.
		var body struct {
			Tools []struct{ Type string }
			MCP   json.RawMessage `json:"mcp_servers"`
		}
		if !json.Valid(in) {
			t.Fatalf("passed, but is not JSON: %q", in)
		}
		var top map[string]json.RawMessage
		_ = json.Unmarshal(in, &top)
		if _, ok := top["mcp_servers"]; ok {
			t.Fatalf("passed with servers: %q", in)
		}
		_ = json.Unmarshal(top["tools"], &body.Tools)
		for _, tool := range body.Tools {
			if strings.HasPrefix(tool.Type, "web_") {
				t.Fatalf("passed with %s: %q", tool.Type, in)
			}
		}
	})
}

func BenchmarkInspect(b *testing.B) {
	for name, part := range map[string]string{
		"prose": `{"role":"user","content":[{"type":"text","text":"` + strings.Repeat(`lorem ipsum \n`, 100) + `"}]},`,
		"dust":  strings.Repeat(`{"a":[1]},`, 100),
	} {
		body := []byte(`{"model":"m","messages":[` + strings.Repeat(part, 1000) + `{}]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := Anthropic.Inspect(body, "", false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
