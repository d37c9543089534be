package aboutcmd

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

// NewVersion returns the command version.
func NewVersion(shell cli.Shell) *cobra.Command {
	type about struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		System  string `json:"system"`
	}
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := about{shell.Release, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if *shell.Format == cli.Table {
				_, err := io.WriteString(shell.Out, console.Sprintf("penstock %s (%s, %s)\n", v.Version, v.Go, v.System))
				return err
			}
			return cli.View[about]{ID: func(v about) string { return v.Version }}.One(shell.Out, *shell.Format, v)
		},
	}
}
