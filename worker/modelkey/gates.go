package modelkey

import (
	"strings"

	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/keyring"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// Secrets are what the output of a worker must not have. They only become more.
type Secrets = redact.Common

// A Change says how many keys came and went; one with another secret did both.
type Change = keyring.Change

// Gates are a worker's ways to its model APIs. Their keys can be replaced while it runs.
type Gates struct {
	all     map[string]*gate.Gate // by API
	secrets *Secrets
}

// NewGates returns gates without keys, by API.
func NewGates(all map[string]*gate.Gate) *Gates { return &Gates{all, new(Secrets)} }

// All returns the gates by API.
func (g *Gates) All() map[string]*gate.Gate { return g.all }

// Secrets returns those of all keys that there have been.
func (g *Gates) Secrets() *Secrets { return g.secrets }

// Prepare checks the keys of an API. Use has its gate use them and no others. Before that their secrets are known, so
// that nothing is written with one that was had with it.
func (g *Gates) Prepare(api string, keys []gate.Credential) (use func() Change, err error) {
	swap, err := g.all[api].Prepare(keys)
	if err != nil {
		return nil, err
	}
	return func() Change {
		for _, c := range keys {
			g.secrets.Learn(variable(api, c), string(c.Key))
		}
		return swap()
	}, nil
}

// variable is the one with the secret of a key, or the one that could have it.
func variable(api string, c gate.Credential) string {
	if c.Name == "" {
		return strings.ToUpper(api) + "_API_KEY"
	}
	return Variable(c.Name)
}
