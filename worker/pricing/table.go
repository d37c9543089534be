package pricing

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Of finds prices: those of own, by names of models, come before the built-in ones. A name
// that ends with "*" stands for all that begin so; the longest of these counts.
type Of struct{ own map[string]Price }

// New returns the prices of an operator, with the built-in ones behind them.
func New(own map[string]Price) Of { return Of{own: maps.Clone(own)} }

// Find returns the price of a model of an API: "anthropic", "openai" or "google". Where
// there is none it returns the dearest of the API, and false.
func (o Of) Find(api, model string) (Price, bool) {
	if p, ok := o.own[model]; ok {
		return p, true
	}
	best, found := -1, Price{}
	for name, p := range o.own {
		begin, open := strings.CutSuffix(name, "*")
		if open && strings.HasPrefix(model, begin) && len(begin) > best {
			best, found = len(begin), p
		}
	}
	if best >= 0 {
		return found, true
	}
	models := builtin[api]
	if p, ok := models[model]; ok {
		return p, true
	}
	if p, ok := models[version().ReplaceAllString(model, "")]; ok {
		return p, true
	}
	return dearest(models), false
}

// version is what providers append to the name of a model without another price: a date, a
// number, or a word. Any other ending is another model, which may cost more.
var version = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(-latest|-\d{8}|-\d{4}-\d{2}-\d{2}|-\d{3}|-preview(-\d{2}-\d{2,4})?|\[1m\])$`)
})

// dearest returns a price that no other in models exceeds in anything.
func dearest(models map[string]Price) Price {
	most := Price{Factors: map[string]float64{}}
	for _, p := range models {
		for _, r := range []Rates{p.Rates, p.Long} {
			most.Input, most.Output = max(most.Input, r.Input), max(most.Output, r.Output)
			most.CacheRead = max(most.CacheRead, r.CacheRead)
			most.CacheWrite = max(most.CacheWrite, r.CacheWrite)
			most.CacheWriteHour = max(most.CacheWriteHour, r.CacheWriteHour)
		}
		for tier, f := range p.Factors {
			most.Factors[tier] = max(most.Factors[tier], f)
		}
	}
	return most
}

// Models returns the names of the models of an API that the built-in table has, in
// alphabetical order.
func Models(api string) []string { return slices.Sorted(maps.Keys(builtin[api])) }

// builtin are the list prices by API and model; the package comment says of when.
var builtin = map[string]map[string]Price{
	"anthropic": {
		"claude-fable-5-1":  anthropic(10, 50, 0.25, 2),
		"claude-mythos-5-1": anthropic(10, 50, 0.25, 2),
		"claude-fable-5":    anthropic(10, 50, 1, 2),
		"claude-mythos-5":   anthropic(10, 50, 1, 2),
		"claude-opus-5-5":   anthropic(4, 20, 0.20, 2),
		"claude-opus-5":     anthropic(5, 25, 0.50, 2),
		"claude-opus-4-8":   anthropic(5, 25, 0.50, 6),
		"claude-opus-4-7":   anthropic(5, 25, 0.50, 6),
		"claude-opus-4-6":   anthropic(5, 25, 0.50, 6),
		"claude-opus-4-5":   anthropic(5, 25, 0.50, 6),
		"claude-opus-4-1":   anthropic(15, 75, 1.50, 2),
		"claude-opus-4":     anthropic(15, 75, 1.50, 2),
		"claude-opus-4-0":   anthropic(15, 75, 1.50, 2),
		"claude-3-opus":     anthropic(15, 75, 1.50, 2),
		"claude-sonnet-5-5": anthropic(2, 10, 0.10, 2),
		"claude-sonnet-5":   anthropic(2, 10, 0.20, 2),
		"claude-sonnet-4-6": anthropic(3, 15, 0.30, 2),
		"claude-sonnet-4-5": long(anthropic(3, 15, 0.30, 2), 200_000, 2, 1.5),
		"claude-sonnet-4":   long(anthropic(3, 15, 0.30, 2), 200_000, 2, 1.5),
		"claude-sonnet-4-0": long(anthropic(3, 15, 0.30, 2), 200_000, 2, 1.5),
		"claude-3-7-sonnet": anthropic(3, 15, 0.30, 2),
		"claude-3-5-sonnet": anthropic(3, 15, 0.30, 2),
		"claude-haiku-5-5":  long(anthropic(0.10, 0.50, 0.01, 2), 100_000, 5, 5),
		"claude-haiku-4-5":  anthropic(1, 5, 0.10, 2),
		"claude-3-5-haiku":  anthropic(0.80, 4, 0.08, 2),
		"claude-3-haiku":    anthropic(0.25, 1.25, 0.03, 2),
	},
	"openai": {
		"gpt-6.2-astra":      long(openai(8, 40, 0.40, 10), 272_000, 2, 1.5),
		"gpt-6.2-sol":        long(openai(2, 10, 0.10, 2.50), 272_000, 2, 1.5),
		"gpt-6.1-sol":        long(openai(2, 10, 0.10, 2.50), 272_000, 2, 1.5),
		"gpt-6-astra":        long(openai(10, 50, 1, 12.50), 272_000, 2, 1.5),
		"gpt-6-sol":          long(openai(2, 10, 0.20, 2.50), 272_000, 2, 1.5),
		"gpt-6-luna":         long(openai(0.10, 0.50, 0.01, 0.125), 272_000, 2, 1.5),
		"gpt-5.6-sol":        long(openai(5, 30, 0.50, 6.25), 272_000, 2, 1.5),
		"gpt-5.6-terra":      long(openai(2, 12, 0.20, 2.50), 272_000, 2, 1.5),
		"gpt-5.6-luna":       long(openai(0.20, 1.20, 0.02, 0.25), 272_000, 2, 1.5),
		"gpt-5.5":            long(openai(5, 30, 0.50, 0), 272_000, 2, 1.5),
		"gpt-5.5-pro":        long(openai(30, 180, 30, 0), 272_000, 2, 1.5),
		"gpt-5.4":            long(openai(2.50, 15, 0.25, 0), 272_000, 2, 1.5),
		"gpt-5.4-pro":        long(openai(30, 180, 30, 0), 272_000, 2, 1.5),
		"gpt-5.4-mini":       openai(0.75, 4.50, 0.075, 0),
		"gpt-5.4-nano":       openai(0.20, 1.25, 0.02, 0),
		"gpt-5.3-codex":      openai(1.75, 14, 0.175, 0),
		"gpt-5.2-codex":      openai(1.75, 14, 0.175, 0),
		"gpt-5.2":            openai(1.75, 14, 0.175, 0),
		"gpt-5.2-pro":        openai(21, 168, 21, 0),
		"gpt-5.1-codex-max":  openai(1.25, 10, 0.125, 0),
		"gpt-5.1-codex-mini": openai(0.25, 2, 0.025, 0),
		"gpt-5.1-codex":      openai(1.25, 10, 0.125, 0),
		"gpt-5.1":            openai(1.25, 10, 0.125, 0),
		"gpt-5-codex":        openai(1.25, 10, 0.125, 0),
		"gpt-5":              openai(1.25, 10, 0.125, 0),
		"gpt-5-pro":          openai(15, 120, 15, 0),
		"gpt-5-mini":         openai(0.25, 2, 0.025, 0),
		"gpt-5-nano":         openai(0.05, 0.40, 0.005, 0),
		"gpt-4.1":            openai(2, 8, 0.50, 0),
		"gpt-4.1-mini":       openai(0.40, 1.60, 0.10, 0),
		"gpt-4.1-nano":       openai(0.10, 0.40, 0.025, 0),
		"gpt-4o":             openai(2.50, 10, 1.25, 0),
		"gpt-4o-mini":        openai(0.15, 0.60, 0.075, 0),
		"o3":                 openai(2, 8, 0.50, 0),
		"o3-pro":             openai(20, 80, 20, 0),
		"o4-mini":            openai(1.10, 4.40, 0.275, 0),
		"codex-mini":         openai(1.50, 6, 0.375, 0),
	},
	"google": {
		"gemini-4-neon":         google(3, 15, 0.15),
		"gemini-4-hydrogen":     google(1.50, 7.50, 0.075),
		"gemini-3.6-flash":      google(1.50, 7.50, 0.15),
		"gemini-3.5-flash":      google(1.50, 9, 0.15),
		"gemini-3.5-flash-lite": google(0.30, 2.50, 0.03),
		"gemini-3.1-pro":        long(google(2, 12, 0.20), 200_000, 2, 1.5),
		"gemini-3.1-flash-lite": google(0.25, 1.50, 0.025),
		"gemini-3-pro":          long(google(2, 12, 0.20), 200_000, 2, 1.5),
		"gemini-3-flash":        google(0.50, 3, 0.05),
		"gemini-2.5-pro":        long(google(1.25, 10, 0.125), 200_000, 2, 1.5),
		"gemini-2.5-flash":      google(0.30, 2.50, 0.03),
		"gemini-2.5-flash-lite": google(0.10, 0.40, 0.01),
		"gemini-2.0-flash":      google(0.10, 0.40, 0.025),
		"gemini-2.0-flash-lite": google(0.075, 0.30, 0.075),
	},
}

// anthropic is a price of Anthropic's: writing to the cache costs a quarter more than
// other input, and twice as much as that input where it stays for an hour.
func anthropic(input, output, cached, fast float64) Price {
	return Price{
		Rates:   Rates{Input: input, Output: output, CacheRead: cached, CacheWrite: 1.25 * input, CacheWriteHour: 2 * input},
		Factors: map[string]float64{Batch: 0.5, Fast: fast, Priority: 1},
	}
}

// openai is a price of OpenAI's. Older models write to their caches at no other price than
// that of the input, which is written as 0.
func openai(input, output, cached, write float64) Price {
	return Price{
		Rates:   Rates{Input: input, Output: output, CacheRead: cached, CacheWrite: max(write, input), CacheWriteHour: max(write, input)},
		Factors: map[string]float64{Batch: 0.5, Flex: 0.5, Priority: 2, Fast: 2},
	}
}

func google(input, output, cached float64) Price {
	return Price{
		Rates:   Rates{Input: input, Output: output, CacheRead: cached, CacheWrite: input, CacheWriteHour: input},
		Factors: map[string]float64{Batch: 0.5, Flex: 0.5, Priority: 1.8, Fast: 1.8},
	}
}

// long adds what calls with a prompt of more than from tokens cost: so many times what the
// others do.
func long(p Price, from int64, input, output float64) Price {
	p.LongFrom = from
	p.Long = Rates{
		Input: input * p.Input, Output: output * p.Output, CacheRead: input * p.CacheRead,
		CacheWrite: input * p.CacheWrite, CacheWriteHour: input * p.CacheWriteHour,
	}
	return p
}
