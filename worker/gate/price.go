package gate

import (
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// A Price is what a million tokens cost, in USD.
type Price struct {
	Input, Output, CacheRead, CacheWrite float64
}

func (p Price) of(u jobs.Usage) float64 {
	return (p.Input*float64(u.Input) + p.Output*float64(u.Output) +
		p.CacheRead*float64(u.CacheRead) + p.CacheWrite*float64(u.CacheWrite)) / 1e6
}

// price finds the price of a model: that of the longest name that begins the model's,
// because providers append dates to names.
func (g *Gate) price(model string) *Price {
	best := -1
	var found *Price
	for name, p := range g.cfg.Prices {
		if strings.HasPrefix(model, name) && len(name) > best {
			best, found = len(name), &p
		}
	}
	return found
}
