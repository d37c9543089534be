package natscmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
)

// A variable is one of a program's environment.
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func environment(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print the variables that point the NATS command line to the pool of this data directory", Args: cobra.NoArgs,
		Long: `Env prints, for a shell, the address of the broker of the pool on this data directory,
and the name and password of its owner, who may do everything there. The command line
of NATS reads these variables. For other people, and for other hosts, make a credential
of a smaller role: penstock nats credentials.`,
		Example: `  eval "$(penstock nats env)"
  nats request penstock.v1.api.submit '{"prompt":"Fix the typo in README","repo":{"url":"/src/app"},"agent":{"name":"claude"}}'`,
		RunE: func(*cobra.Command, []string) error {
			if shell.Config.Server != "" {
				return cli.Usage("penstock nats credentials makes a credential for it", "the password of %s is not known here", pool.Redacted(shell.Config.Server))
			}
			endpoint, err := natsd.Find(pool.StoreDir(shell))
			if errors.Is(err, natsd.ErrNotRunning) {
				return cli.Fail(cli.ExitUnreachable, "penstock serve runs one", "no pool runs on data directory %s", shell.Config.Data)
			}
			if err != nil {
				return fmt.Errorf("find the pool of %s: %w", shell.Config.Data, err)
			}
			list := []variable{{"NATS_URL", endpoint.URL}, {"NATS_USER", endpoint.User}, {"NATS_PASSWORD", endpoint.Password}}
			if *shell.Format != cli.Table {
				return cli.View[variable]{ID: func(v variable) string { return v.Name }}.List(shell.Out, *shell.Format, list)
			}
			for _, v := range list {
				shell.Out.Printf("export %s='%s'\n", v.Name, strings.ReplaceAll(v.Value, "'", `'\''`))
			}
			return nil
		},
	}
}
