// Package githubcmd is the command github: what the pool's credential of GitHub needs, and
// whether it has that.
package githubcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs/visible"
)

// needs is what a person has to do at GitHub.
const needs = `A pool opens pull requests as a GitHub App, or with a fine-grained token.

As an App: at Settings, Developer settings, GitHub Apps, New GitHub App
  webhook                 none; "penstock serve" takes those of hooks with a secret of their own
  repository permissions  Contents: read; Pull requests: read and write;
                          Issues: read and write, for comments on them;
                          Checks: read and write, for the outcome of the pool's checks
  then                    generate a private key, and install the App in the repositories
  settings of serve       forges.github.app_id, forges.github.app_key_file

With a token: at Settings, Developer settings, Fine-grained tokens
  repository access       the repositories of the jobs, and no others
  repository permissions  Contents: read; Pull requests: read and write;
                          Issues: read and write, for comments on them;
                          Commit statuses: read and write, for the outcome of the pool's checks
  settings of serve       forges.github.token_file
`

// New returns the command github.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "github", Short: "Connect a pool with GitHub",
		Long: `Github says what a pool needs to open pull requests on GitHub, and tries the credential that
the settings name. See docs/how-to/pull-requests.md.`,
	}
	cmd.AddCommand(newSetup(shell))
	return cmd
}

func newSetup(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "setup [OWNER/REPOSITORY…]", Short: "Say what the credential needs, and try it on repositories",
		Long: `Setup prints which permissions a GitHub App or a token needs, and by which settings serve gets
it. For each repository it tries the credential of these settings, as serve would, and
changes nothing there.`,
		Example: `  penstock github setup
  penstock github setup you/app`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				shell.Out.Printf("%s", needs)
				return nil
			}
			var errs []error
			for _, repo := range args {
				said, err := shell.Config.Forges.GitHub.Probe(cmd.Context(), repo)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %s", visible.Line(repo), visible.Line(err.Error())))
					continue
				}
				shell.Out.Printf("%s: %s\n", visible.Line(repo), said)
			}
			if err := errors.Join(errs...); err != nil {
				return cli.Fail(cli.ExitUnexpected, "penstock github setup says what it needs", "%w", err)
			}
			return nil
		},
	}
}
