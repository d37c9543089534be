package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/sandbox/policy"
)

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "The jail by hand, and what jails were refused"}
	cmd.AddCommand(a.sandboxRunCommand(), a.violationsCommand())
	return cmd
}

// violations is where everything is kept that jails of this data directory
// wanted and did not get.
func (a *app) violations() *policy.Store {
	return policy.NewStore(filepath.Join(a.cfg.Data, "violations.jsonl"))
}

func (a *app) violationsCommand() *cobra.Command {
	var q policy.Query
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use:   "violations",
		Short: "List what jails wanted and did not get, the oldest first",
		Long: `Violations lists what jails that were started on this data directory wanted and
did not get: hosts that are not on their list, paths and settings that a policy
does not permit, limits that they reached. A program that looks for a file which
its jail does not have finds nothing there, and leaves no trace here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = past(since, time.Now()); err != nil {
				return err
			}
			if follow {
				return a.followViolations(cmd.Context(), q)
			}
			found, err := a.violations().Find(q)
			if err != nil {
				return err
			}
			return violationView.List(a.out, a.format, found)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only after this time (RFC 3339), or not longer ago than this (as in 2h)")
	flags.Var(choice(&q.Kind, violationKinds()), "kind", "only host, model, read, write, limit or policy")
	flags.StringVar(&q.Label, "label", "", "only of the jail with this label, or of the job with this id")
	flags.BoolVarP(&follow, "follow", "f", false, "go on with those that come, until interrupted")
	return cmd
}

// followViolations writes each violation by itself, when it is there.
func (a *app) followViolations(ctx context.Context, q policy.Query) error {
	for v, err := range a.violations().Follow(ctx, q) {
		if err == nil && a.format == cli.Table {
			err = a.out.Row(console.Span{Text: strings.Join(violationView.Row(v), "  ")})
		} else if err == nil {
			err = violationView.One(a.out, a.format, v)
		}
		if err != nil {
			return err
		}
	}
	return cli.Fail(cli.ExitInterrupted, "", "interrupted")
}

var violationView = cli.View[policy.Violation]{
	Header: []string{"TIME", "KIND", "WHAT", "REASON", "LABEL"},
	Row: func(v policy.Violation) []string {
		return []string{v.Time.Local().Format(time.DateTime), v.Kind, v.What, v.Reason, v.Label}
	},
	ID: func(v policy.Violation) string { return v.Label },
}

// past reads a moment that is over: a time, or how long it is ago.
func past(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d.Abs()), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, cli.Usage("", "--since: %q is neither a time as 2027-01-02T15:04:05Z nor a time span as 2h", text)
	}
	return at, nil
}

// loadPolicy reads the policy of the settings; without one it is empty.
func (a *app) loadPolicy() (policy.Policy, error) {
	if a.cfg.Policy == "" {
		return policy.Policy{}, nil
	}
	p, err := policy.Load(a.cfg.Policy)
	if err != nil {
		return p, cli.Usage("penstock schema policy describes the file; see docs/isolation.md", "--policy: %w", err)
	}
	return p, nil
}

// denied says that a policy does not permit what was asked for.
func denied(err error) error {
	return cli.Fail(cli.ExitDenied, "ask for less, or have the policy changed", "%w", err)
}

// network is what a jail gets that was not told: what the policy says, or
// hosts where it names some.
func network(asked string, p policy.Policy) string {
	if asked == "" && p.Network == "" && len(p.Hosts) > 0 {
		return "allowlist"
	}
	return cmp.Or(asked, p.Network, "none")
}

// keep adds violations to a store. That one cannot be kept must not end what
// the jail is for.
func (a *app) keep(store *policy.Store) func(policy.Violation) {
	return func(v policy.Violation) {
		if err := store.Add(v); err != nil {
			a.err.Printf("penstock: %v\n", err)
		}
	}
}

// here is what the patterns of a policy are relative to: this user's home and
// this program's directory.
func here() policy.Where {
	var w policy.Where
	if home, err := os.UserHomeDir(); err == nil {
		w.Home = home
	}
	if dir, err := os.Getwd(); err == nil {
		w.Dir = dir // a pattern that needs what is not known says so
	}
	return w
}
