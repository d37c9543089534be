package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/worker/pricing"
)

// Prices and budgets are read as docs/how-to/budgets.md shows them, and what is no price
// is refused by its name.
func TestPricesAndBudgets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "penstock.yaml")
	load := func(text string) (Config, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var c Config
		return c, c.Load(pflag.NewFlagSet("", pflag.ContinueOnError), file, nil)
	}
	c, err := load(`prices:
  our-gateway/*: {input: 1, output: 4}
  gpt-5.4: {input: 2.5, output: 15, cache_read: 0.25, cache_write: 2.5, long_from: 272000, long: {input: 5, output: 22.5}, factors: {flex: 0.5, priority: 2}}
serve:
  budgets: ["queue:default=50/day", "pool=20000000tokens/hour"]
`)
	if err != nil {
		t.Fatal(err)
	}
	if p, known := pricing.New(c.Prices).Find("openai", "our-gateway/x"); !known || p.Output != 4 {
		t.Errorf("got %+v, known %v", p, known)
	}
	if p := c.Prices["gpt-5.4"]; p.LongFrom != 272000 || p.Long.Input != 5 || p.CacheWrite != 2.5 || p.Factors["flex"] != 0.5 {
		t.Errorf("got %+v", p)
	}
	if all, err := c.Serve.Spending(); err != nil || len(all) != 2 || all[0].USD != 50 || all[1].Tokens != 20_000_000 {
		t.Errorf("budgets %+v, err %v", all, err)
	}
	for text, want := range map[string]string{
		"prices: {m: {input: -1}}":            "prices.m: input",
		"prices: {m: {inptu: 1}}":             "inptu",
		"serve: {budgets: [\"pool=5/week\"]}": "serve.budgets",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
