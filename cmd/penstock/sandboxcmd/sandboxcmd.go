// Package sandboxcmd is the command penstock sandbox: it runs a command in a jail
// by hand, and lists what jails were refused.
//
//	flags ──▶ plan ──▶ permit ──▶ explain, or start and follow ──▶ exit code
//
// Nothing of the command runs before the policy has permitted the whole jail,
// and nothing of the jail is alive when the command of the user returns.
package sandboxcmd

import (
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// New returns the command.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "Run a command in a jail, and list refused requests of jails"}
	cmd.AddCommand(runCommand(shell), violationsCommand(shell))
	return cmd
}
