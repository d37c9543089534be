package tokencount

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/pricing"
)

const (
	start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1\",\"usage\":" +
		"{\"input_tokens\":100,\"cache_read_input_tokens\":30,\"cache_creation_input_tokens\":20," +
		"\"cache_creation\":{\"ephemeral_1h_input_tokens\":5},\"output_tokens\":1,\"service_tier\":\"standard\"}}}\n\n"
	piece = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello you\"}}\n\n"
	delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":50}}\n\n"
	stop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

	created = "data: {\"type\":\"response.created\",\"response\":{\"model\":\"m-1\",\"usage\":null,\"service_tier\":\"auto\"}}\n\n"
	added   = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello you\",\"obfuscation\":\"abcdefghijklmno\"}\n\n"
	done    = "data: {\"type\":\"response.output_text.done\",\"text\":\"hello you hello you hello you\"}\n\n"
	ended   = "data: {\"type\":\"response.completed\",\"response\":{\"model\":\"m-1\",\"service_tier\":\"flex\",\"usage\":" +
		"{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":60},\"output_tokens\":50}}}\n\n"

	chunk = "data: {\"object\":\"chat.completion.chunk\",\"model\":\"m-1\",\"choices\":[{\"delta\":{\"content\":\"hello you\"}}],\"usage\":null}\n\n"
	tool  = "data: {\"object\":\"chat.completion.chunk\",\"model\":\"m-1\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"ls\",\"arguments\":\"{}\"}}]}}]}\n\n"
	total = "data: {\"object\":\"chat.completion.chunk\",\"model\":\"m-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":50,\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\ndata: [DONE]\n\n"

	part = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello you\"}]}}],\"modelVersion\":\"m-1\",\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":60,\"candidatesTokenCount\":5}}\r\n\r\n"
	last = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"modelVersion\":\"m-1\",\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":60,\"candidatesTokenCount\":40,\"thoughtsTokenCount\":10}}\r\n\r\n"
)

func many(n int, piece string) string { return strings.Repeat(piece, n) }

// Whatever a provider reports, or does not, an answer counts for no less than what was seen
// of it.
func TestCounts(t *testing.T) {
	type tokens = pricing.Tokens
	const text = 3000 // bytes, which are 1001 tokens if they must be estimated
	lie := func(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }
	for _, tt := range []struct {
		name, api, answer string
		text              int64
		took              time.Duration
		want              tokens
	}{
		{"as reported", "anthropic", start + piece + delta + stop, 600, time.Hour, tokens{Input: 100, Output: 50, CacheRead: 30, CacheWrite: 20, CacheWriteHour: 5, Tier: "standard"}},
		{"cut", "anthropic", start + many(20, piece), 600, 0, tokens{Input: 100, Output: 60, CacheRead: 30, CacheWrite: 20, CacheWriteHour: 5, Tier: "standard"}},
		{"cut while it thought", "anthropic", start, 600, 2 * time.Second, tokens{Input: 100, Output: 400, CacheRead: 30, CacheWrite: 20, CacheWriteHour: 5, Tier: "standard"}},
		{"cut after it thought for long", "anthropic", start, 600, time.Hour, tokens{Input: 100, Output: 5000, CacheRead: 30, CacheWrite: 20, CacheWriteHour: 5, Tier: "standard"}},
		{"no usage", "anthropic", many(20, piece) + stop, text, 0, tokens{Input: 1001, Output: 60}},
		{"zero usage", "anthropic", lie(start, ":100,", ":0,", ":30,", ":0,", ":20,", ":0,") + many(90, piece) + lie(delta, ":50", ":0"), text, 0,
			tokens{Input: 1001, Output: 270, CacheWriteHour: 5, Tier: "standard"}},
		{"negative usage", "anthropic", lie(start, ":100,", ":-100,", ":30,", ":-30,", ":20,", ":-20,") + many(90, piece) + lie(delta, ":50", ":-50"), text, 0,
			tokens{Input: 1001, Output: 270, CacheWriteHour: 5, Tier: "standard"}},
		{"more than there are numbers", "anthropic", lie(start, ":100,", ":1000000000000,") + delta, 600, 0, tokens{Output: 50, CacheRead: 30, CacheWrite: 20, CacheWriteHour: 5, Tier: "standard"}},
		{"usage that is no number", "anthropic", lie(start, ":100,", ":\"x\",") + many(3, piece) + stop, 60, 0, tokens{Input: 21, Output: 49 + 9}},
		{"an error before anything", "anthropic", "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n", text, time.Minute, tokens{}},
		{"nothing at all", "anthropic", "", text, 0, tokens{Input: 1001}},
		{"of another kind", "anthropic", "data: " + strings.Repeat("x", 385) + "\n", 30, 0, tokens{Input: 11, Output: 100}},

		{"as reported", "openai", created + many(3, added) + done + ended, 600, time.Hour, tokens{Input: 40, Output: 50, CacheRead: 60, Tier: "auto"}},
		{"cut", "openai", created + many(20, added) + done, text, 0, tokens{Input: 1001, Output: 60, Tier: "auto"}},
		{"zero usage", "openai", created + many(90, added) + lie(ended, ":100", ":0", ":50", ":0", ":60", ":0"), text, 0, tokens{Input: 1001, Output: 270, Tier: "auto"}},
		{"more cached than there was", "openai", created + lie(ended, ":60", ":999"), text, 0, tokens{Output: 50, CacheRead: 999, Tier: "auto"}},
		{"completions", "openai", many(3, chunk) + tool + total, 600, time.Hour, tokens{Input: 40, Output: 50, CacheRead: 60}},
		{"completions without usage", "openai", many(20, chunk) + many(10, tool) + "data: [DONE]\n\n", text, 0, tokens{Input: 1001, Output: 74}},

		{"as reported", "google", part + last, 600, time.Hour, tokens{Input: 40, Output: 50, CacheRead: 60}},
		{"cut", "google", many(20, part), 600, 0, tokens{Input: 40, Output: 60, CacheRead: 60}},
		{"zero usage", "google", lie(many(90, part)+last, ":100", ":0", ":60", ":0", ":40", ":0", ":10", ":0", ":5", ":0"), text, 0, tokens{Input: 1001, Output: 270}},
	} {
		c := New(Request{API: tt.api, Text: tt.text, Most: 5000}, true)
		c.Write([]byte(tt.answer))
		c.Finish(tt.took)
		if got := c.Tokens(); got != tt.want {
			t.Errorf("%s, %s: %+v, want %+v", tt.api, tt.name, got, tt.want)
		}
		free := New(Request{API: tt.api, Text: tt.text, Most: 5000, Free: true}, true)
		free.Finish(tt.took)
		if got := free.Tokens(); got != (tokens{}) {
			t.Errorf("%s, %s: a free one counts %+v", tt.api, tt.name, got)
		}
	}
}

func TestWholeAnswers(t *testing.T) {
	long := strings.Repeat("hello you ", 300)
	for _, tt := range []struct {
		api, answer string
		want        pricing.Tokens
		kind        string
	}{
		{"anthropic", `{"type":"message","model":"m-1","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":7,"output_tokens":3,"service_tier":"batch"}}`, pricing.Tokens{Input: 7, Output: 3}, ""},
		{"anthropic", `{"type":"message","content":[{"type":"tool_use","input":{"a":"` + long + `"}}],"usage":{"input_tokens":0,"output_tokens":0}}`, pricing.Tokens{Input: 21, Output: 1003}, ""},
		{"anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, pricing.Tokens{}, "overloaded_error"},
		{"anthropic", long, pricing.Tokens{Input: 21, Output: 971}, ""},
		{"openai", `{"object":"response","model":"m-1","error":null,"output":[{"content":[{"text":"hi"}]}],"usage":{"input_tokens":9,"output_tokens":3}}`, pricing.Tokens{Input: 9, Output: 3}, ""},
		{"openai", `{"object":"response","output":[{"content":[{"text":"` + long + `"}]}]}`, pricing.Tokens{Input: 21, Output: 1000}, ""},
		{"openai", `{"object":"chat.completion","choices":[{"message":{"content":"` + long + `"}}],"usage":{"prompt_tokens":8,"completion_tokens":1}}`, pricing.Tokens{Input: 8, Output: 1000}, ""},
		{"openai", `{"error":{"code":"insufficient_quota","message":"x"}}`, pricing.Tokens{}, "insufficient_quota"},
		{"google", `{"candidates":[{"finishReason":"STOP","content":{"parts":[{"text":"` + long + `"}]}}],"usageMetadata":{"promptTokenCount":8}}`, pricing.Tokens{Input: 8, Output: 1000}, ""},
	} {
		c := New(Request{API: tt.api, Text: 60, Most: 5000}, false)
		c.Write([]byte(tt.answer))
		c.Finish(0)
		if got := c.Tokens(); got != tt.want || c.Kind() != tt.kind {
			t.Errorf("%s %.80s: %+v %q, want %+v %q", tt.api, tt.answer, got, c.Kind(), tt.want, tt.kind)
		}
	}
}

// A cheaper tier counts only if it was asked for, a dearer one always.
func TestTiers(t *testing.T) {
	for _, tt := range []struct{ asked, reported, want string }{
		{"", "flex", ""}, {"flex", "flex", "flex"}, {"flex", "default", "default"}, {"flex", "", "flex"},
		{"", "priority", "priority"}, {"priority", "default", "default"}, {"batch", "flex", "batch"},
	} {
		c := New(Request{API: "openai", Tier: tt.asked}, false)
		c.Write([]byte(fmt.Sprintf(`{"object":"response","service_tier":%q}`, tt.reported)))
		c.Finish(0)
		if got := c.Tokens().Tier; got != tt.want {
			t.Errorf("%q asked, %q reported: %q, want %q", tt.asked, tt.reported, got, tt.want)
		}
	}
}

func FuzzCounter(f *testing.F) {
	for _, answer := range []string{start + piece + delta + stop, created + added + ended, chunk + tool + total, part + last, `{"type":"message","usage":{"input_tokens":7}}`} {
		f.Add([]byte(answer), 7, true)
		f.Add([]byte(answer), 3, false)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int, isStream bool) {
		for api := range apis {
			sum := func(size int) *Counter {
				c := New(Request{API: api, Text: 100, Most: 1000}, isStream)
				total := func() int64 { u := c.Tokens(); return u.Input + u.Output + u.CacheRead + u.CacheWrite }
				for p := range slices.Chunk(in, size) {
					before := total()
					c.Write(p)
					if total() < before {
						t.Fatal("a count fell")
					}
				}
				before := total()
				c.Finish(0)
				if total() < before || total() < 0 {
					t.Fatal("a count fell at the end")
				}
				return c
			}
			whole, pieces := sum(len(in)+1), sum(size&0x3f+1)
			if whole.tokens != pieces.tokens || whole.model != pieces.model {
				t.Errorf("%s: as a whole %+v, in pieces %+v", api, whole.tokens, pieces.tokens)
			}
		}
	})
}
