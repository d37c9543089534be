package main

import (
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

func (a *app) configCommand() *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Show the settings"}
	config.AddCommand(&cobra.Command{
		Use: "view", Short: "Print every setting in effect, in the form of a settings file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.format == cli.Table || a.format == cli.YAML {
				return a.cfg.YAML(a.out)
			}
			plain, err := a.cfg.Plain()
			if err != nil {
				return err
			}
			return cli.View[map[string]any]{}.One(a.out, cli.JSON, plain)
		},
	})
	return config
}
