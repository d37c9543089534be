package aboutcmd

import (
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// NewConfig returns the command config.
func NewConfig(shell cli.Shell) *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Show the settings"}
	config.AddCommand(&cobra.Command{
		Use: "view", Short: "Print every setting in effect, in the form of a settings file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if *shell.Format == cli.Table || *shell.Format == cli.YAML {
				return shell.Config.YAML(shell.Out)
			}
			plain, err := shell.Config.Plain()
			if err != nil {
				return err
			}
			return cli.View[map[string]any]{}.One(shell.Out, cli.JSON, plain)
		},
	})
	return config
}
