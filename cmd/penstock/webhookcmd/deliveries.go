package webhookcmd

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

func sortedNames(labels map[string]string) []string { return slices.Sorted(maps.Keys(labels)) }

var deliveryView = cli.View[operation.Delivery]{
	Header: []string{"ID", "AT", "EVENT", "JOB", "ATTEMPT", "STATE", "ANSWER", "NEXT"},
	Row: func(d operation.Delivery) []string {
		next := ""
		if d.Next != nil {
			next = d.Next.Local().Format(time.RFC3339)
		}
		return []string{d.ID, d.At.Local().Format(time.RFC3339), d.Type, d.Job, fmt.Sprint(d.Attempt), d.State, outcome(d), next}
	},
	ID: func(d operation.Delivery) string { return d.ID },
}

func outcome(d operation.Delivery) string {
	if d.Error != "" {
		return d.Error
	}
	return fmt.Sprint(d.Status)
}

func test(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Send a test event now, once, and show what came of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withWebhooks(cmd.Context(), shell, "read", func(webhooks client.Webhooks) error {
				made, err := webhooks.Test(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if err := deliveryView.One(shell.Out, *shell.Format, made); err != nil {
					return err
				}
				if made.State != operation.DeliveryDone {
					return cli.Fail(cli.ExitFailure, "", "the test event was not delivered: %s", made.Error)
				}
				return nil
			})
		},
	}
}

func deliveries(shell cli.Shell) *cobra.Command {
	var want operation.DeliveriesRequest
	var since string
	cmd := &cobra.Command{
		Use: "deliveries [NAME]", Short: "List attempts to deliver events, of the last seven days", Args: cobra.MaximumNArgs(1),
		Example: `  penstock webhook deliveries --since 1h
  penstock webhook deliveries ci --failed -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				want.Name = args[0]
			}
			begin, err := input.Past(since, time.Now())
			if err != nil {
				return cli.Usage("", "--since: %w", err)
			}
			if !begin.IsZero() {
				want.Since = &begin
			}
			return withWebhooks(cmd.Context(), shell, "read", func(webhooks client.Webhooks) error {
				list, err := pool.Collect(webhooks.Deliveries(cmd.Context(), want))
				if err != nil {
					return err
				}
				return deliveryView.List(shell.Out, *shell.Format, list)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only since a time, as 2027-01-02T15:04:05Z, or a time ago, as 2h or 7d")
	cmd.Flags().BoolVar(&want.Failed, "failed", false, "only those that failed")
	return cmd
}

func redeliver(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "redeliver ID…", Short: "Deliver events again, with the ids that they had", Args: cobra.MinimumNArgs(1),
		Long: `Deliver events again, by the ids that penstock webhook deliveries shows. Receivers that
have seen an event know it by its id, webhook-id. One that waits for its next attempt is
tried now. The dispatcher that leads does so.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withWebhooks(cmd.Context(), shell, "read", func(webhooks client.Webhooks) error {
				for _, id := range args {
					if err := webhooks.Redeliver(cmd.Context(), id); err != nil {
						return err
					}
					shell.Err.Printf("penstock: %s is delivered again\n", id)
				}
				return nil
			})
		},
	}
}
