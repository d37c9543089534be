// Package webhookcmd is the command webhook: events of jobs that are sent to others.
package webhookcmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

// New returns the command webhook.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Aliases: []string{"webhooks"}, Short: "Send events of jobs to others",
		Long: `A webhook posts events of jobs to a URL: signed as Standard Webhooks has it, each as a
CloudEvent in JSON, at least once, and those of one job in their order. What is not
answered with 2xx is sent again, up to ten times in three days.`,
	}
	cmd.AddCommand(add(shell), ls(shell), remove(shell), test(shell), deliveries(shell), redeliver(shell))
	return cmd
}

// withWebhooks opens the pool for a command about webhooks. Owner is how this process is
// called when another one finds it there.
func withWebhooks(ctx context.Context, shell cli.Shell, owner string, fn func(webhooks client.Webhooks) error) error {
	return pool.With(ctx, shell, owner, func(p *pool.Pool) error {
		return cli.NotFound(fn(p.Client.Webhooks()), "penstock webhook ls and penstock webhook deliveries list what there is")
	})
}

// An added webhook is what its owner is told: the secret is there this one time, if it
// was made here.
type added struct {
	operation.Webhook
	Secret string `json:"secret,omitempty"`
}

// addedView is for programs. For people the secret alone is printed, so that a shell can
// assign it to a variable.
var addedView = cli.View[added]{ID: func(a added) string { return a.Name }}

func add(shell cli.Shell) *cobra.Command {
	var want operation.WebhookRequest
	var labels []string
	var secretFile string
	var replace bool
	cmd := &cobra.Command{
		Use: "add NAME --url URL", Short: "Send events to a URL from now on, and print the secret that signs them", Args: cobra.ExactArgs(1),
		Example: `  penstock webhook add ci --url https://ci.example.com/penstock --events job.finished
  penstock webhook add chat --url https://bot.example.com/in --queue nightly --label team=web
  penstock webhook add ci --url https://ci.example.com/penstock --replace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if want.Name = args[0]; want.URL == "" {
				return cli.Usage("", "--url is missing: name where events are to be posted to")
			}
			var err error
			if want.Labels, err = input.Pairs(labels); err != nil {
				return cli.Usage("", "--label: %w", err)
			}
			if secretFile != "" {
				text, err := input.ReadFile(secretFile, 1<<10)
				if err != nil {
					return cli.Usage("", "--secret-file: %w", err)
				}
				want.Secret = strings.TrimSpace(string(text))
			}
			return withWebhooks(cmd.Context(), shell, "webhook", func(webhooks client.Webhooks) error {
				ask := webhooks.Add
				if replace {
					ask = webhooks.Replace
				}
				secret, w, err := ask(cmd.Context(), want)
				if err != nil {
					return err
				}
				return say(shell, secret, w)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&want.URL, "url", "", "where events are posted to: https, or http in networks of webhooks.allow_private")
	flags.StringSliceVar(&want.Events, "events", nil, "kinds of events: "+strings.Join(operation.WebhookEvents(), ", ")+" (default job.*)")
	flags.StringVar(&want.Queue, "queue", "", "only of jobs of this queue")
	flags.StringVar(&want.Batch, "batch", "", "only of jobs of this batch")
	flags.StringArrayVar(&labels, "label", nil, "only of jobs with this label, NAME=VALUE (repeatable)")
	flags.StringVar(&secretFile, "secret-file", "", "file with the secret: whsec_ and 24 to 64 bytes in base64 (default: one is made and printed)")
	flags.BoolVar(&replace, "replace", false, "replace the webhook of that name; its old secret signs, too, for another 24 hours")
	return cmd
}

func say(shell cli.Shell, secret string, w operation.Webhook) error {
	shell.Err.Printf("penstock: webhook %s gets %s", w.Name, strings.Join(w.Events, ", "))
	if secret != "" {
		shell.Err.Printf("; its secret is not shown again")
	}
	if w.Rotating != nil {
		shell.Err.Printf("; the secret from before signs, too, until %s", w.Rotating.Local().Format(time.RFC3339))
	}
	shell.Err.Printf("\n")
	if *shell.Format != cli.Table {
		return addedView.One(shell.Out, *shell.Format, added{w, secret})
	}
	if secret == "" {
		return nil
	}
	_, err := io.WriteString(shell.Out, secret+"\n")
	return err
}

var view = cli.View[operation.Webhook]{
	Header: []string{"NAME", "STATE", "WAITING", "EVENTS", "OF", "URL"},
	Row: func(w operation.Webhook) []string {
		return []string{w.Name, state(w), fmt.Sprint(w.Waiting), strings.Join(w.Events, ","), filters(w), w.URL}
	},
	ID: func(w operation.Webhook) string { return w.Name },
}

func state(w operation.Webhook) string {
	switch {
	case w.Disabled != nil:
		return "disabled: " + w.Disabled.Reason
	case w.Failing != nil:
		return "failing since " + w.Failing.Local().Format(time.RFC3339) + ": " + w.Error
	}
	return "ok"
}

func filters(w operation.Webhook) string {
	var all []string
	if w.Queue != "" {
		all = append(all, "queue "+w.Queue)
	}
	if w.Batch != "" {
		all = append(all, "batch "+w.Batch)
	}
	for _, name := range sortedNames(w.Labels) {
		all = append(all, name+"="+w.Labels[name])
	}
	if len(all) == 0 {
		return "all jobs"
	}
	return strings.Join(all, ", ")
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the webhooks, and how their deliveries go", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withWebhooks(cmd.Context(), shell, "read", func(webhooks client.Webhooks) error {
				list, err := pool.Collect(webhooks.List(cmd.Context()))
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
		Use: "rm NAME…", Short: "Send nothing to webhooks any more, and forget their deliveries", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withWebhooks(cmd.Context(), shell, "read", func(webhooks client.Webhooks) error {
				for _, name := range args {
					if err := webhooks.Remove(cmd.Context(), name); err != nil {
						return err
					}
					shell.Err.Printf("penstock: removed webhook %s\n", name)
				}
				return nil
			})
		},
	}
}
