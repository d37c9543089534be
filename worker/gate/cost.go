package gate

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/tokencount"
	"github.com/penstock-run/penstock/worker/pricing"
)

// bound is the most that a call can use whose body has so many bytes. No byte is more than
// one token.
func (c *call) bound(bytes int64) budget.Amount {
	if !c.route.Asks {
		return budget.Amount{}
	}
	answer := c.longest() * max(c.asks.Choices, 1)
	price, _ := c.g.cfg.Prices.Find(c.g.api.Name, c.asks.Model)
	return budget.Amount{USD: price.Most(bytes, answer, c.asks.Tier, c.asks.Regional), Tokens: bytes + answer}
}

// longest is how many tokens an answer has at most: what the request says, or what models
// of the provider can.
func (c *call) longest() int64 {
	if c.asks.Output > 0 {
		return min(c.asks.Output, c.g.api.Longest)
	}
	return c.g.api.Longest
}

// counts begins the count of an answer; failed: of the provider's error, which costs
// nothing.
func (c *call) counts(stream, failed bool) {
	c.count = tokencount.New(tokencount.Request{
		API: c.g.api.Name, Text: c.asks.Text, Most: c.longest() * max(c.asks.Choices, 1), Tier: c.asks.Tier, Regional: c.asks.Regional,
		Free: !c.route.Asks || failed,
	}, stream)
}

// tally reports to the session what was used since the last time.
func (c *call) tally() {
	t := c.count.Tokens()
	sum := jobs.Usage{Input: t.Input, Output: t.Output, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite}
	if sum == c.used {
		return
	}
	if model := c.count.Model(); model != "" {
		c.result.Model = model
	}
	more := jobs.Usage{
		Input: sum.Input - c.used.Input, Output: sum.Output - c.used.Output,
		CacheRead: sum.CacheRead - c.used.CacheRead, CacheWrite: sum.CacheWrite - c.used.CacheWrite,
	}
	usd, known := c.price(t)
	usd = max(usd, c.cost) // a cheaper tier may come to light late
	cost := usd - c.cost
	c.used, c.cost = sum, usd
	if c.s.use(c, more, cost, known) && c.g.cfg.Hooks.Spent != nil {
		c.g.cfg.Hooks.Spent(c.s.id)
	}
}

// price returns what a call costs by the model that it asked for, and the one that
// answered: the dearer of them. A model without a price counts as the dearest of its
// provider, unless the other one has a price. It reports whether one has.
func (c *call) price(t pricing.Tokens) (usd float64, known bool) {
	find := func(model string) (float64, bool) {
		p, known := c.g.cfg.Prices.Find(c.g.api.Name, model)
		return p.Cost(t), known
	}
	usd, known = find(c.asks.Model)
	if c.result.Model == "" || c.result.Model == c.asks.Model {
		return usd, known
	}
	other, too := find(c.result.Model)
	switch {
	case known && too:
		return max(usd, other), true
	case too:
		return other, true
	}
	return usd, known
}

// A sentTrace knows whether a request has been sent.
type sentTrace struct{ done atomic.Bool }

func (s *sentTrace) in(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { s.done.Store(info.Err == nil) },
	})
}

func (s *sentTrace) was() bool { return s.done.Load() }
