package jail

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/agent"
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

// View is what all jails of a worker with these settings see besides a job's own: mounts,
// variables and limits; and the backends that the policy permits, none for all. With the error of
// a policy comes what there is without it.
func View(cfg *cli.Config) (spec sandbox.Spec, backends []string, err error) {
	spec.Args = []string{"true"}
	rules, err := LoadPolicy(cfg)
	if err == nil {
		spec, err = rules.Apply(spec, Here())
	}
	if err != nil {
		rules.Backends = nil
	}
	isPath := func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }
	spec.Env = append(slices.DeleteFunc(slices.Clone(spec.WithDefaults().Env), isPath), "PATH="+cmp.Or(rules.Env["PATH"], worker.Path))
	for _, path := range cfg.Worker.ROPaths {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: path, Target: path})
	}
	return spec, rules.Backends, err
}

// AskVersion returns the specification of a jail in which an agent's program says its version.
func AskVersion(spec sandbox.Spec, p agent.Program) sandbox.Spec {
	spec.Args, spec.Mounts = append(slices.Clone(p.Args), "--version"), slices.Clone(spec.Mounts)
	for _, path := range p.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: path, Target: path})
	}
	return spec
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
