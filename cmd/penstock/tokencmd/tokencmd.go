// Package tokencmd is the command token: who may use the pool over HTTP.
package tokencmd

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

// New returns the command token.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Aliases: []string{"tokens"}, Short: "Decide who may use the pool over HTTP",
		Long: `A token proves to the pool's HTTP interface who makes a request. Its role says what
its holder may do: autoscale (read what queues hold), viewer (read everything),
submitter (hand in jobs and steer them) or operator (everything). The pool keeps
only the token's hash.`,
	}
	cmd.AddCommand(add(shell), ls(shell), remove(shell))
	return cmd
}

// withTokens opens the pool for a command about tokens. Owner is how this process is
// called when another one finds it there.
func withTokens(ctx context.Context, shell cli.Shell, owner string, fn func(tokens client.Tokens) error) error {
	return pool.With(ctx, shell, owner, func(p *pool.Pool) error {
		return cli.NotFound(fn(p.Client.Tokens()), "penstock token ls lists them")
	})
}

// An issued token is what its maker is told: the token itself is there this one time.
type issued struct {
	operation.Token
	Secret string `json:"token"`
}

// issuedView is for programs. For people the token alone is printed, so that a shell can
// assign it to a variable.
var issuedView = cli.View[issued]{ID: func(t issued) string { return t.Name }}

func add(shell cli.Shell) *cobra.Command {
	var role string
	var expires input.Span
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE", Short: "Make a token, and print it this one time", Args: cobra.ExactArgs(1),
		Example: `  penstock token add ci --role submitter --expires 90d
  penstock token add keda --role autoscale -o json
  PENSTOCK_TOKEN=$(penstock token add me --role operator --expires 12h)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if role == "" {
				return cli.Usage("", "--role is missing: use %s", input.List(input.Strings(jobs.TokenRoles...)))
			}
			return withTokens(cmd.Context(), shell, "token", func(tokens client.Tokens) error {
				secret, made, err := tokens.Add(cmd.Context(), args[0], jobs.Role(role), time.Duration(expires))
				if err != nil {
					return err
				}
				until := "until it is removed"
				if made.Expires != nil {
					until = "until " + made.Expires.Local().Format(time.RFC3339)
				}
				shell.Err.Printf("penstock: token %s of role %s is accepted %s; it is not shown again\n", made.Name, made.Role, until)
				if *shell.Format == cli.Table {
					_, err := io.WriteString(shell.Out, secret.Reveal()+"\n")
					return err
				}
				return issuedView.One(shell.Out, *shell.Format, issued{made, secret.Reveal()})
			})
		},
	}
	cmd.Flags().Var(input.OneOf(&role, input.Strings(jobs.TokenRoles...)...), "role", "what its holder may do: autoscale, viewer, submitter or operator")
	cmd.Flags().Var(&expires, "expires", "how long it is accepted, as in 12h or 30d (default: until it is removed)")
	return cmd
}

var view = cli.View[operation.Token]{
	Header: []string{"NAME", "ROLE", "CREATED", "BY", "EXPIRES", "LAST USED"},
	Row: func(t operation.Token) []string {
		expires := moment(t.Expires, "never")
		if t.Expires != nil && t.Expires.Before(time.Now()) {
			expires = "expired " + expires
		}
		return []string{t.Name, string(t.Role), moment(&t.Created, ""), t.By, expires, moment(t.LastUsed, "never")}
	},
	ID: func(t operation.Token) string { return t.Name },
}

func moment(at *time.Time, none string) string {
	if at == nil {
		return none
	}
	return at.Local().Format(time.RFC3339)
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the tokens: who holds which role, until when, and when it was last used", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTokens(cmd.Context(), shell, "read", func(tokens client.Tokens) error {
				list, err := pool.Collect(tokens.List(cmd.Context()))
				if err != nil {
					return err
				}
				return view.List(shell.Out, *shell.Format, list)
			})
		},
	}
}

func remove(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Accept tokens no more", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTokens(cmd.Context(), shell, "read", func(tokens client.Tokens) error {
				for _, name := range args {
					if err := tokens.Remove(cmd.Context(), name); err != nil {
						return err
					}
					shell.Err.Printf("penstock: removed token %s\n", name)
				}
				return nil
			})
		},
	}
}
