package agentcmd

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// A bed is where an agent is run without a worker: in jails as a worker with these settings has.
type bed struct {
	agents *agent.Agents
	about  agent.About
	jail   harness.Jail
}

// testbed is the bed of the agent of that name. The purpose labels its jails: workers and clean
// end what a killed command leaves.
func testbed(ctx context.Context, shell cli.Shell, name, purpose string, limit time.Duration) (b bed, err error) {
	b.agents = workerparts.Agents(shell.Config)
	adapter, err := b.agents.Get(name)
	if err != nil {
		return b, cli.Fail(cli.ExitNotFound, "penstock agent ls lists them; a settings file adds others under agents:", "%w", err)
	}
	b.about = adapter.About()
	if b.about.Brought {
		return b, cli.Usage("give a program a name under agents: in the settings, with protocol: "+name, "agent %s has no program of its own", name)
	}
	spec, permitted, err := jail.View(shell.Config)
	if err != nil {
		return b, err
	}
	backend, err := jail.Choose(ctx, shell.Config.Worker.Backend, permitted)("auto")
	if err != nil {
		return b, err
	}
	if backend.Name() == "none" {
		return b, cli.Usage("penstock doctor says what this host lacks for jails", "agents are tested in a jail, and the settings have backend none")
	}
	spec.Label = poolmark.Label(purpose, workerparts.PoolMark(shell.Config))
	b.jail = harness.Jail{Backend: backend, Spec: spec, Limit: limit}
	return b, nil
}

// missing adds the command that installs a missing program to an error.
func (b bed) missing(err error) error {
	if missing, ok := errors.AsType[*agent.MissingError](err); ok {
		return cli.Fail(cli.ExitNotFound, b.about.Install, "%w", missing)
	}
	return err
}

var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)key|token|secret|passw|credential`) })

// secrets are the values of variables that look like secrets: those of this process, and those
// that a policy gives to jails.
func (b bed) secrets(environ []string) map[string]string {
	found := map[string]string{}
	for _, all := range [][]string{environ, b.jail.Spec.Env} {
		for _, kv := range all {
			if name, value, _ := strings.Cut(kv, "="); value != "" && secretName().MatchString(name) {
				found[name] = value
			}
		}
	}
	return found
}
