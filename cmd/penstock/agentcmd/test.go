package agentcmd

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// A tested ability is one line of an agent's report.
type tested struct {
	Agent string `json:"agent"`
	contract.Finding
}

var testedView = cli.View[tested]{
	Header: []string{"CHECK", "RESULT", "MEANS", "SEEN"},
	Row: func(t tested) []string {
		return []string{t.Check, string(t.Status), strings.ReplaceAll(t.Means, "`", ""), t.Seen}
	},
	ID: func(t tested) string { return t.Check },
}

func newTest(shell cli.Shell) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Find out in a jail what an agent can do", Args: cobra.ExactArgs(1),
		Long: `Test runs an agent that is installed here, or that a settings file adds, in jails as jobs of
a worker with these settings have them. Its model is a script on loopback, which speaks the APIs of
Anthropic, OpenAI and Google: no key is needed, and nothing leaves this host. The key that the agent
must not see is one for this test.

Each check is one ability. The result is "yes" if it was seen, "no" if the agent does not claim
it, "failed" if it claims it and something else was seen, and "not tried" if there is no way to see
it here. A few checks, such as that its prompt is answered, are wanted of all agents. If a check
failed, the exit code is 1. An agent starts about ten times, so that real ones take a minute.`,
		Example: `  penstock agent test codex
  penstock agent test mine --config penstock.yaml -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit <= 0 {
				return cli.Usage("", "--timeout: must be more than 0")
			}
			return test(cmd.Context(), shell, args[0], limit)
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 2*time.Minute, "how long one run of the agent may take")
	return cmd
}

func test(ctx context.Context, shell cli.Shell, name string, limit time.Duration) error {
	agents := workerparts.Agents(shell.Config)
	adapter, err := agents.Get(name)
	if err != nil {
		return cli.Fail(cli.ExitNotFound, "penstock agent ls lists them; a settings file adds others under agents:", "%w", err)
	}
	if adapter.About().Brought {
		return cli.Usage("give a program a name under agents: in the settings, with protocol: "+name, "agent %s has no program of its own", name)
	}
	spec, permitted, err := jail.View(shell.Config)
	if err != nil {
		return err
	}
	backend, err := jail.Choose(ctx, shell.Config.Worker.Backend, permitted)("auto")
	if err != nil {
		return err
	}
	if backend.Name() == "none" {
		return cli.Usage("penstock doctor says what this host lacks for jails", "agents are tested in a jail, and the settings have backend none")
	}
	spec.Label = poolmark.Label("agent-test", workerparts.PoolMark(shell.Config)) // workers and clean end what a killed test leaves
	suite := contract.Suite{
		Agents: agents, Jail: contract.Jail{Backend: backend, Spec: spec, Limit: limit},
		Checked: func(f contract.Finding) { shell.Progressf("%s: %s", f.Check, f.Status) },
	}
	report, err := suite.Test(ctx, name)
	if missing, ok := errors.AsType[*agent.MissingError](err); ok {
		return cli.Fail(cli.ExitNotFound, adapter.About().Install, "%w", missing)
	}
	if err != nil {
		return err
	}
	var lines []tested
	for _, f := range report.Checks {
		lines = append(lines, tested{name, f})
	}
	if err := testedView.List(shell.Out, *shell.Format, lines); err != nil {
		return err
	}
	if failed := report.Failed(); len(failed) > 0 {
		return cli.Fail(cli.ExitUnexpected, "", "agent %s failed: %s", name, strings.Join(failed, ", "))
	}
	return nil
}
