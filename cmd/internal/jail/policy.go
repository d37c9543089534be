package jail

import (
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/policy"
)

// LoadPolicy reads the policy of the settings. Without one it is empty.
func LoadPolicy(cfg *cli.Config) (policy.Policy, error) {
	if cfg.Policy == "" {
		return policy.Policy{}, nil
	}
	p, err := policy.Load(cfg.Policy)
	if err != nil {
		return p, cli.Usage("penstock schema policy describes the file; see docs/reference/policies.md", "--policy: %w", err)
	}
	return p, nil
}

// Here is the base of relative patterns in a policy: this user's home and this
// program's directory. A pattern that needs an unknown one is refused.
func Here() jailpolicy.Where {
	var w jailpolicy.Where
	if home, err := os.UserHomeDir(); err == nil {
		w.Home = home
	}
	if dir, err := os.Getwd(); err == nil {
		w.Dir = dir
	}
	return w
}

// Violations stores the requests that jails of a data directory were refused.
func Violations(cfg *cli.Config) *jailpolicy.Store {
	return jailpolicy.NewStore(filepath.Join(cfg.Data, "violations.jsonl"))
}

// Keep returns a function that adds violations to a store. A violation that
// cannot be stored is reported, and does not end the jail.
func Keep(store *jailpolicy.Store, failed func(error)) func(jailpolicy.Violation) {
	return func(v jailpolicy.Violation) {
		if err := store.Add(v); err != nil {
			failed(err)
		}
	}
}
