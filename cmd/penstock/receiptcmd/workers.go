package receiptcmd

import (
	"bytes"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/receipt"
)

func newWorkers(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "workers", Short: "Print the workers of this pool, with their keys of receipts", Args: cobra.NoArgs,
		Long: `Workers prints a line for each credential of the data directory with which a worker may run
jobs: its name, and the key of its receipts. The key belongs to the credential, so the list needs
nothing from the workers. The last line, owner, is for workers that need no credential, on the
data directory itself. Keep the list where you verify, receipt verify --workers FILE, and with it the
lines of credentials that were revoked, as long as their receipts count.`,
		Example: `  penstock receipt workers >workers`,
		RunE: func(*cobra.Command, []string) error {
			// Else the key below would be made, and be no worker's.
			if _, err := os.Stat(shell.Config.Data); err != nil {
				return cli.Usage("name the directory of the pool's broker with --data", "receipt workers: there is no pool: %w", err)
			}
			held, err := natsd.Credentials(pool.StoreDir(shell))
			if err != nil {
				return err
			}
			var list []line
			for _, c := range held {
				switch {
				case c.Receipts != "":
					list = append(list, line{c.Name, c.Receipts})
				case c.Role == jobs.RoleWorker || c.Role.All():
					shell.Err.Printf("penstock: credential %s is of an earlier release, and its key is not kept here: penstock receipt key --creds FILE prints it for verify --key\n", c.Name)
				}
			}
			own, err := ownKey(*shell.Config)
			if err != nil {
				return err
			}
			list = append(list, own...)
			if *shell.Format != cli.Table {
				return cli.View[line]{ID: func(l line) string { return l.Name }}.List(shell.Out, *shell.Format, list)
			}
			for _, l := range list {
				shell.Out.Printf("%s %s\n", l.Name, l.Key)
			}
			return nil
		},
	}
}

// A line of the list of workers.
type line struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// ownKey is the line of the workers that need no credential, unless they sign nothing.
func ownKey(settings cli.Config) ([]line, error) {
	settings.Creds = ""
	key, err := signing.ReceiptKey(&settings)
	if err != nil || key == nil {
		return nil, err
	}
	public, err := half(key)
	return []line{{owner, receipt.KeyID(public)}}, err
}

// owner is their name.
const owner = "owner"

// readWorkers reads a list, which has one worker at least.
func readWorkers(file string) (receipt.Workers, error) {
	data, err := input.ReadFile(file, input.MaxFile)
	if err != nil {
		return nil, err
	}
	list, err := receipt.ParseWorkers(bytes.NewReader(data))
	if err == nil && len(list) == 0 {
		err = errors.New("it names no worker")
	}
	return list, err
}
