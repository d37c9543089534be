package localworker

import (
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/modelkey"
	"github.com/penstock-run/penstock/worker/pricing"
)

// A modelAPI is what the settings say of one.
type modelAPI struct {
	name, url string
	variable  string // with the key of the environment
	key       gate.Key
}

func modelAPIs(settings *cli.Config) []modelAPI {
	return []modelAPI{
		{"anthropic", settings.Model.AnthropicURL, "ANTHROPIC_API_KEY", gate.Key(settings.AnthropicKey)},
		{"openai", settings.Model.OpenAIURL, "OPENAI_API_KEY", gate.Key(settings.OpenAIKey)},
		{"google", settings.Model.GoogleURL, "GOOGLE_API_KEY", gate.Key(settings.GoogleKey)},
	}
}

// ModelAPI is where a model API is by the settings, and the key of the environment for it; without
// a key it is empty.
func ModelAPI(settings *cli.Config, name string) (url string, key gate.Key) {
	for _, api := range modelAPIs(settings) {
		if api.name == name {
			return api.url, api.key
		}
	}
	return "", ""
}

// openGates makes a gate for each model API, also for those that the worker has no key for yet.
func openGates(settings *cli.Config, attended bool) (*modelkey.Gates, error) {
	all := map[string]*gate.Gate{}
	for _, api := range modelAPIs(settings) {
		var err error
		all[api.name], err = gate.New(gate.Config{API: api.name, Upstream: api.url, Prices: pricing.New(settings.Prices), Govern: true, PassRefused: attended})
		if err != nil {
			return nil, cli.Usage("", "model API: %w", err)
		}
	}
	gates := modelkey.NewGates(all)
	use, err := prepareKeys(settings, gates)
	if err != nil {
		return nil, err
	}
	use()
	return gates, nil
}

// prepareKeys reads the keys of each model API: those that the settings name, or else that of the
// environment. Use has the gates use them.
func prepareKeys(settings *cli.Config, gates *modelkey.Gates) (use func() modelkey.Change, err error) {
	var uses []func() modelkey.Change
	for _, api := range modelAPIs(settings) {
		keys, err := settings.Model.Keys.Open(api.name, api.url, settings.Model.Secrets)
		if err != nil {
			return nil, cli.Usage("see docs/how-to/model-keys.md", "model.keys.%w", err)
		}
		if len(keys) == 0 && api.key != "" {
			keys = []gate.Credential{{Key: api.key}}
		}
		use, err := gates.Prepare(api.name, keys)
		if err != nil {
			return nil, cli.Usage("see model."+api.name+"_url, model.keys and "+api.variable, "model API: %w", err)
		}
		uses = append(uses, use)
	}
	return func() (sum modelkey.Change) {
		for _, use := range uses {
			change := use()
			sum.Added, sum.Removed = sum.Added+change.Added, sum.Removed+change.Removed
		}
		return sum
	}, nil
}

// PrepareKeys reads the keys of model APIs of settings that were read again. Use has the worker use them, also
// for jobs that run. All else is as it was at the start, also where keys without a URL go.
func (w *Worker) PrepareKeys(again cli.Config) (use func() modelkey.Change, err error) {
	settings := w.settings
	settings.Model.Keys, settings.Model.Secrets = again.Model.Keys, again.Model.Secrets
	return prepareKeys(&settings, w.gates)
}
