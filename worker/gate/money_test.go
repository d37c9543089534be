package gate

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/worker/pricing"
)

// A budget of money holds, whatever the agent itself makes of it. A model without a price
// is the dearest of its provider, and told once.
func TestBudgetInMoney(t *testing.T) {
	// A call: 100 in, 50 out, 30 from the cache and 20 into it.
	prices := pricing.New(map[string]pricing.Price{
		"claude-x*": {Rates: pricing.Rates{Input: 1000, Output: 2000, CacheRead: 100, CacheWrite: 1500}}, // 0.1 + 0.1 + 0.003 + 0.03
		"*":         {Rates: pricing.Rates{Input: 1e6}},
	})
	r := newRig(t, Config{Prices: prices}, Limits{USD: 0.7, UsedUSD: 0.3}, stream(start, delta, stop))
	warned, spent := 0, 0
	count := func(all bool) {
		if all {
			spent++
		} else {
			warned++
		}
	}
	r.session.Budget = count
	for i, want := range []int{200, 200, 400} {
		if status, body := r.messages(); status != want || want == 400 && !strings.Contains(body, "0.7 USD") {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
	if m := r.session.Meter(); math.Abs(m.CostUSD-0.466) > 1e-9 || m.Unpriced != 0 {
		t.Errorf("meter %+v", m)
	}
	// The beginning of the answer that spends the rest may come by itself, and warn.
	if warned > 1 || spent != 1 {
		t.Errorf("warned %d times, by the call that spent the rest; told %d times that it is spent", warned, spent)
	}
	warned = 0

	r = newRig(t, Config{}, Limits{USD: 0.02}, stream(start, delta, stop))
	var mu sync.Mutex
	var told []string
	r.session.Unpriced = func(model string) { mu.Lock(); defer mu.Unlock(); told = append(told, model) }
	r.session.Budget = count
	const call = (100*15 + 50*75 + 30*1.5 + 20*18.75) / 1e6 // of Opus 4.1, the dearest of the list
	for range 3 {
		if status, _ := r.messages(); status != 200 {
			t.Errorf("got %d without a price", status)
		}
	}
	if m := r.session.Meter(); math.Abs(m.CostUSD-3*call) > 1e-9 || m.Unpriced != 600 {
		t.Errorf("meter %+v, want %v USD", m, 3*call)
	}
	if warned != 1 || !slices.Equal(told, []string{"claude-x-1"}) {
		t.Errorf("warned %d times, told of %q", warned, told)
	}
}

// The dearer of the models counts that a request names and that its answer names.
func TestAnotherModelAnswers(t *testing.T) {
	for _, tt := range []struct {
		asked, answers string
		usd            float64 // of a million tokens in
	}{
		{"claude-opus-5", "claude-opus-5-20260724", 5}, {"claude-opus-5", "claude-haiku-4-5", 5}, {"claude-haiku-4-5", "claude-opus-5", 5},
		{"fast", "claude-haiku-4-5", 1}, {"claude-haiku-4-5", "psychic", 1}, {"psychic", "psychic-1", 15},
	} {
		r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
			stream(strings.NewReplacer("claude-x-1", tt.answers, ":100,", ":1000000,", ":30,", ":0,", ":20,", ":0,").Replace(start), stop)(w, req)
		})
		r.do("POST", "/v1/messages", strings.Replace(hello, "claude-x", tt.asked, 1))
		p, _ := pricing.New(nil).Find("anthropic", tt.asked)
		if m := r.session.Meter(); math.Abs(m.CostUSD-tt.usd) > 1e-3 {
			t.Errorf("%s answered by %s: %v USD, want %v (%v)", tt.asked, tt.answers, m.CostUSD, tt.usd, p.Input)
		}
	}
}
