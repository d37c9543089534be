package pricing

import (
	"fmt"
	"math"
)

// Rates are what a million tokens of each kind cost, in US dollars.
type Rates struct {
	Input     float64 `yaml:"input"`
	Output    float64 `yaml:"output"`
	CacheRead float64 `yaml:"cache_read"`
	// CacheWrite is of what stays in the cache for minutes, and CacheWriteHour of what
	// stays for an hour.
	CacheWrite     float64 `yaml:"cache_write"`
	CacheWriteHour float64 `yaml:"cache_write_hour"`
}

// A Price is what calls of one model cost.
type Price struct {
	Rates `yaml:",inline"`
	// LongFrom is the number of tokens of a prompt beyond which the whole call costs
	// what Long says; 0: there is no such number.
	LongFrom int64 `yaml:"long_from"`
	Long     Rates `yaml:"long"`
	// Factors multiply the price of calls in a service tier other than the standard
	// one. The tier "priority" stands for any that is not named, and costs twice as
	// much if it is missing.
	Factors map[string]float64 `yaml:"factors"`
}

// The tiers that have names of their own.
const (
	Batch    = "batch"
	Flex     = "flex"
	Priority = "priority"
	Fast     = "fast"
)

// otherTier is the factor of a tier that a price does not have.
const otherTier = 2

// abroad is the factor of calls that must stay in one region.
const abroad = 1.1

// Tokens are what one call has used.
type Tokens struct {
	Input, Output, CacheRead, CacheWrite int64
	CacheWriteHour                       int64 // of CacheWrite
	Tier                                 string
	Regional                             bool // the call had to stay in one region
}

// Cost returns what a call costs, in US dollars.
func (p Price) Cost(t Tokens) float64 {
	r := p.Rates
	if p.LongFrom > 0 && t.Input+t.CacheRead+t.CacheWrite > p.LongFrom {
		r = p.Long
	}
	hour := min(t.CacheWriteHour, t.CacheWrite)
	usd := (r.Input*float64(t.Input) + r.Output*float64(t.Output) + r.CacheRead*float64(t.CacheRead) +
		r.CacheWrite*float64(t.CacheWrite-hour) + max(r.CacheWriteHour, r.CacheWrite)*float64(hour)) / 1e6
	usd *= p.factor(t.Tier)
	if t.Regional {
		usd *= abroad
	}
	return usd
}

// Most returns the most that a call may cost whose prompt and answer have at most so many
// tokens: all of the prompt at the dearest of its rates.
func (p Price) Most(prompt, answer int64, tier string, regional bool) float64 {
	most := 0.0
	for _, r := range []Rates{p.Rates, p.Long} {
		dearest := max(r.Input, r.CacheRead, r.CacheWrite, r.CacheWriteHour)
		most = max(most, dearest*float64(prompt)+r.Output*float64(answer))
		if p.LongFrom == 0 || prompt <= p.LongFrom {
			break
		}
	}
	usd := most / 1e6 * max(1, p.factor(tier))
	if regional {
		usd *= abroad
	}
	return usd
}

func (p Price) factor(tier string) float64 {
	switch tier {
	case "", "default", "standard", "standard_only", "auto":
		return 1
	}
	if f, ok := p.Factors[tier]; ok {
		return f
	}
	if f, ok := p.Factors[Priority]; ok {
		return max(1, f)
	}
	return otherTier
}

// Validate reports what is wrong with a price that an operator has set.
func (p Price) Validate() error {
	for name, usd := range map[string]float64{
		"input": p.Input, "output": p.Output, "cache_read": p.CacheRead, "cache_write": p.CacheWrite, "cache_write_hour": p.CacheWriteHour,
		"long.input": p.Long.Input, "long.output": p.Long.Output, "long.cache_read": p.Long.CacheRead,
		"long.cache_write": p.Long.CacheWrite, "long.cache_write_hour": p.Long.CacheWriteHour,
	} {
		if !amount(usd, 1e6) {
			return fmt.Errorf("%s: %v is not a price of a million tokens in US dollars", name, usd)
		}
	}
	if p.LongFrom < 0 {
		return fmt.Errorf("long_from: %d is less than 0", p.LongFrom)
	}
	if p.LongFrom > 0 && p.Long == (Rates{}) {
		return fmt.Errorf("long_from has no price: set long")
	}
	for tier, f := range p.Factors {
		if !amount(f, 1000) {
			return fmt.Errorf("factors.%s: %v is not a factor", tier, f)
		}
	}
	return nil
}

func amount(v, most float64) bool { return v >= 0 && v <= most && !math.IsNaN(v) }
