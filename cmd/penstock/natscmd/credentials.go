package natscmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
)

func credentials(shell cli.Shell) *cobra.Command {
	var name, file string
	var print bool
	cmd := &cobra.Command{
		Use: "credentials ROLE", Args: cobra.ExactArgs(1),
		Short: "Make a credential for the bus in one role",
		Long: `Credentials makes a key for the role viewer, submitter, worker or operator, and
prints the file that its holder passes to --creds. The embedded broker of the data
directory accepts it at once, and keeps only the public key. With --print-config the
credential is for an external server instead: the entry for that server's
configuration goes to standard error.`,
		Example: `  penstock nats credentials worker --name build-3 --file build-3.creds
  penstock nats credentials ls
  penstock nats credentials revoke build-3
  penstock nats credentials config > penstock-accounts.conf`,
		RunE: func(_ *cobra.Command, args []string) error {
			role, err := jobs.ParseRole(args[0])
			if err != nil {
				return cli.Usage("penstock nats credentials --help", "%w", err)
			}
			held, secret, err := natsd.NewCredential(role, name)
			if err != nil {
				return cli.Usage("", "%w", err)
			}
			if print {
				err = printUser(shell, held)
			} else {
				err = natsd.Admit(pool.StoreDir(shell), held)
			}
			if err != nil {
				return err
			}
			return handOver(shell, held, secret, file)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the credential (default: the role and some letters)")
	cmd.Flags().StringVar(&file, "file", "", "write the credential to a new file that only you can read, not to standard output")
	cmd.Flags().BoolVar(&print, "print-config", false, "for an external server: print its user entry, and do not add it to the embedded broker")
	cmd.AddCommand(credentialsLs(shell), credentialsRevoke(shell), credentialsConfig(shell))
	return cmd
}

func printUser(shell cli.Shell, held natsd.Credential) error {
	entry, err := pool.Layout(shell).UserConfig(access.User{Name: held.Name, Role: held.Role, Key: held.Key})
	if err != nil {
		return err
	}
	shell.Err.Printf("# users of account %s: %s\n%s\n", access.Account(held.Role), held.Name, entry)
	if held.Receipts != "" {
		shell.Err.Printf("# for penstock receipt verify --workers:\n%s %s\n", held.Name, held.Receipts)
	}
	return nil
}

// handOver gives the secret away. It is nowhere else.
func handOver(shell cli.Shell, held natsd.Credential, secret natsd.Secret, file string) error {
	if file == "" {
		_, err := shell.Out.Write(secret)
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(secret)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write credential %s: %w; revoke it", held.Name, err)
	}
	return credentialView.One(shell.Out, *shell.Format, held)
}

var credentialView = cli.View[natsd.Credential]{
	Header: []string{"NAME", "ROLE", "KEY", "AGE"},
	Row: func(c natsd.Credential) []string {
		return []string{c.Name, string(c.Role), c.Key, time.Since(c.Created).Truncate(time.Second).String()}
	},
	ID: func(c natsd.Credential) string { return c.Name },
}

func credentialsLs(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the credentials that the embedded broker accepts", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := natsd.Credentials(pool.StoreDir(shell))
			if err != nil {
				return err
			}
			return credentialView.List(shell.Out, *shell.Format, list)
		},
	}
}

func credentialsRevoke(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME…", Short: "Refuse credentials from now on, and end their connections", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			var revoked []natsd.Credential
			for _, name := range names {
				held, err := natsd.Revoke(pool.StoreDir(shell), name)
				if err != nil {
					return err
				}
				revoked = append(revoked, held)
			}
			return credentialView.List(shell.Out, *shell.Format, revoked)
		},
	}
}

func credentialsConfig(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "config", Args: cobra.NoArgs,
		Short: "Print accounts and users for the configuration of an external server",
		Long: `Config prints the accounts of the roles for the configuration file of an external
NATS server, with the credentials of the data directory as their users. The embedded
broker itself runs with the same accounts.`,
		RunE: func(*cobra.Command, []string) error {
			list, err := natsd.Credentials(pool.StoreDir(shell))
			if err != nil {
				return err
			}
			var users []access.User
			for _, c := range list {
				users = append(users, access.User{Name: c.Name, Role: c.Role, Key: c.Key})
			}
			text, err := pool.Layout(shell).Config(users)
			if err != nil {
				return cli.Usage("", "%w", err)
			}
			_, err = io.WriteString(shell.Out, text)
			return err
		},
	}
}
