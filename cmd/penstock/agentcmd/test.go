package agentcmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/worker/agent/contract"
)

// A tested ability is one line of an agent's report.
type tested struct {
	Agent string `json:"agent"`
	contract.Finding
}

var testedView = cli.View[tested]{
	Header: []string{"GROUP", "CHECK", "RESULT", "MEANS", "SEEN"},
	Row: func(t tested) []string {
		return []string{t.Group, t.Check, string(t.Status), strings.ReplaceAll(t.Means, "`", ""), t.Seen}
	},
	ID: func(t tested) string { return t.Check },
}

func newTest(shell cli.Shell) *cobra.Command {
	var limit time.Duration
	var only []string
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Find out in a jail what an agent can do", Args: cobra.ExactArgs(1),
		Long: `Test runs an agent that is installed here, or that a settings file adds, in jails as jobs of
a worker with these settings have them. Its model is a script on loopback, which speaks the APIs of
Anthropic, OpenAI and Google: no key is needed, and nothing leaves this host. The key that the agent
must not see is one for this test.

Each check is one ability. The result is "yes" if it was seen, "no" if the agent does not claim
it, "failed" if it claims it and something else was seen, and "not tried" if there is no way to see
it here. A few checks, such as that its prompt is answered, are wanted of all agents. If a check
failed, the exit code is 1. An agent starts about fifty times, so that real ones take a few minutes;
--only tries some checks, or groups of them, alone.`,
		Example: `  penstock agent test codex
  penstock agent test codex --only tools,permissions
  penstock agent test mine --config penstock.yaml -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit <= 0 {
				return cli.Usage("", "--timeout: must be more than 0")
			}
			if err := known(only); err != nil {
				return err
			}
			return test(cmd.Context(), shell, args[0], limit, only)
		},
	}
	addOnly(cmd.Flags(), &only)
	cmd.Flags().DurationVar(&limit, "timeout", 2*time.Minute, "how long one run of the agent may take")
	return cmd
}

// addOnly defines the flag that chooses checks.
func addOnly(flags *pflag.FlagSet, only *[]string) {
	flags.StringSliceVar(only, "only", nil, "checks and groups of checks to try (comma-separated or repeated); the others are left out")
}

// known is an error unless all names are checks or groups of them.
func known(only []string) error {
	for _, name := range only {
		if !slices.Contains(contract.Names(), name) {
			return cli.Usage("docs/reference/agents.md lists the checks", "--only: %q is no check and no group; there are %s", name, strings.Join(contract.Names(), ", "))
		}
	}
	return nil
}

func test(ctx context.Context, shell cli.Shell, name string, limit time.Duration, only []string) error {
	t, err := testbed(ctx, shell, name, "agent-test", limit)
	if err != nil {
		return err
	}
	suite := contract.Suite{
		Agents: t.agents, Jail: t.jail, Only: only,
		Checked: func(f contract.Finding) { shell.Progressf("%s: %s", f.Check, f.Status) },
	}
	report, err := suite.Test(ctx, name)
	if err != nil {
		return t.missing(err)
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
