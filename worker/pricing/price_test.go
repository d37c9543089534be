package pricing

import (
	"math"
	"strings"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Each row is worked out by hand from the providers' pages.
func TestCost(t *testing.T) {
	const million = 1_000_000
	for _, tt := range []struct {
		name, api, model string
		used             Tokens
		usd              float64
	}{
		{"input and output", "anthropic", "claude-opus-5", Tokens{Input: million, Output: 100_000}, 5 + 2.5},
		{"a dated name", "anthropic", "claude-haiku-4-5-20251001", Tokens{Input: million}, 1},
		{"caches", "anthropic", "claude-sonnet-4-6", Tokens{CacheRead: million, CacheWrite: million}, 0.30 + 3.75},
		{"a cache for an hour", "anthropic", "claude-sonnet-4-6", Tokens{CacheWrite: million, CacheWriteHour: 400_000}, 0.6*3.75 + 0.4*6},
		{"more for an hour than was written", "anthropic", "claude-sonnet-4-6", Tokens{CacheWrite: 1000, CacheWriteHour: million}, 0.006},
		{"batch", "anthropic", "claude-opus-5", Tokens{Input: million, Tier: "batch"}, 2.5},
		{"fast", "anthropic", "claude-opus-4-6", Tokens{Input: million, Output: million, Tier: "fast"}, 30 + 150},
		{"the tier's usual names", "anthropic", "claude-opus-5", Tokens{Input: million, Tier: "standard"}, 5},
		{"in one region", "anthropic", "claude-opus-5", Tokens{Input: million, Regional: true}, 5.5},
		{"short prompt", "anthropic", "claude-haiku-5-5", Tokens{Input: 50_000, CacheRead: 50_000, Output: million}, 0.005 + 0.0005 + 0.5},
		{"long prompt", "anthropic", "claude-haiku-5-5", Tokens{Input: 50_000, CacheRead: 50_001, Output: million}, 0.025 + 0.00250005 + 2.5},
		{"flex", "openai", "gpt-5.4", Tokens{Input: 100_000, Tier: "flex"}, 0.125},
		{"priority", "openai", "gpt-5.4", Tokens{Input: 100_000, Tier: "priority"}, 0.5},
		{"a tier that is new", "openai", "gpt-5.4", Tokens{Input: 100_000, Tier: "ultrafast"}, 0.5},
		{"long, at OpenAI", "openai", "gpt-5.4-2026-03-05", Tokens{Input: 300_000, Output: 1000}, 1.5 + 0.0225},
		{"cached, at OpenAI", "openai", "gpt-5-codex", Tokens{CacheRead: million}, 0.125},
		{"long, at Google", "google", "gemini-3.1-pro-preview", Tokens{Input: 200_001, Output: 1000}, 0.800004 + 0.018},
		{"a preview", "google", "gemini-2.5-flash-preview-09-2025", Tokens{Output: million}, 2.5},
	} {
		p, known := New(nil).Find(tt.api, tt.model)
		if got := p.Cost(tt.used); !known || !near(got, tt.usd) {
			t.Errorf("%s: %v, known %v, want %v", tt.name, got, known, tt.usd)
		}
	}
}

// A name that only begins as one that is known is another model.
func TestUnknownModelsCostTheMost(t *testing.T) {
	for api, models := range builtin {
		for _, name := range []string{"", "psychic-1", "gpt-5.4-ultra", "claude-opus-5-turbo", "gemini-3.1-pro-x", "claude-opus"} {
			p, known := New(nil).Find(api, name)
			if known {
				t.Errorf("%s: %q is known", api, name)
			}
			for other, q := range models {
				for _, tier := range []string{"", Batch, Flex, Priority, Fast, "new"} {
					used := Tokens{Input: 300_000, Output: 5000, CacheRead: 1000, CacheWrite: 2000, CacheWriteHour: 500, Tier: tier}
					if p.Cost(used) < q.Cost(used)-1e-9 {
						t.Errorf("%s: %q in tier %q costs less than %s", api, name, tier, other)
					}
				}
			}
		}
	}
	if p, known := New(nil).Find("nowhere", "m"); known || p.Cost(Tokens{Input: 1}) != 0 {
		t.Errorf("an API without prices: %+v", p)
	}
}

// No call costs more than what was reserved for it.
func TestMostIsABound(t *testing.T) {
	for api, models := range builtin {
		for name, p := range models {
			for _, prompt := range []int64{10, 99_999, 150_000, 300_000} {
				for _, tier := range []string{"", Batch, Flex, Priority, Fast, "new"} {
					most := p.Most(prompt, 500, tier, true)
					for _, u := range []Tokens{{Input: prompt}, {CacheRead: prompt}, {CacheWrite: prompt}, {CacheWrite: prompt, CacheWriteHour: prompt}} {
						u.Output, u.Tier, u.Regional = 500, tier, true
						if got := p.Cost(u); got > most+1e-9 {
							t.Errorf("%s %s: %+v costs %v, bound %v", api, name, u, got, most)
						}
					}
				}
			}
		}
	}
}

func TestOwnPrices(t *testing.T) {
	own := New(map[string]Price{
		"claude-opus-5": {Rates: Rates{Input: 1}}, "gw/*": {Rates: Rates{Input: 2}}, "gw/large*": {Rates: Rates{Input: 3}}, "gw/large-1": {Rates: Rates{Input: 4}},
	})
	for model, usd := range map[string]float64{
		"claude-opus-5": 1, "claude-opus-5-20260724": 5, "gw/x": 2, "gw/large-2": 3, "gw/large-1": 4,
	} {
		if p, known := own.Find("anthropic", model); !known || p.Input != usd {
			t.Errorf("%s: %v, known %v, want %v", model, p.Input, known, usd)
		}
	}
	if p, known := New(map[string]Price{"*": {Rates: Rates{Input: 7}}}).Find("openai", "anything"); !known || p.Input != 7 {
		t.Errorf("for all: %v, %v", p.Input, known)
	}
}

func TestValidate(t *testing.T) {
	for want, p := range map[string]Price{
		"":         {Rates: Rates{Input: 1, Output: 5}, LongFrom: 9, Long: Rates{Input: 2}, Factors: map[string]float64{"flex": 0.5}},
		"input":    {Rates: Rates{Input: -1}},
		"output":   {Rates: Rates{Output: math.NaN()}},
		"long.":    {Long: Rates{Input: math.Inf(1)}},
		"set long": {LongFrom: 5},
		"less":     {LongFrom: -1},
		"factors":  {Factors: map[string]float64{"flex": -0.5}},
	} {
		if err := p.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for api, models := range builtin {
		for _, name := range Models(api) {
			if err := models[name].Validate(); err != nil || models[name].Input == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
