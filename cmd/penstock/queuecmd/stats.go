package queuecmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/summary"
)

func stats(shell cli.Shell) *cobra.Command {
	window := operation.DefaultWindow
	cmd := &cobra.Command{
		Use: "stats [QUEUE…]", Short: "Show what queues hold, and how fast their jobs begin and end",
		Long: `Stats shows what each queue holds now and, over a window that ends now, how many of its
jobs ended in a minute, with which outcomes, how long they waited for their first attempt
(median and 95 %) and how long their last attempt took. It knows of the jobs that the pool
still keeps. With -o json the answer is that of GET /v1/stats: the whole pool, and each queue.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if window <= 0 {
				return cli.Usage("", "--window is to be more than nothing")
			}
			for _, name := range names {
				if err := jobs.CheckToken("queue", name); err != nil {
					return cli.Usage("", "%w", err)
				}
			}
			return pool.With(cmd.Context(), shell, "read", func(p *pool.Pool) error {
				return showStats(cmd, shell, p, operation.StatsRequest{Queues: names, Window: jobs.Duration(window)})
			})
		},
	}
	cmd.Flags().DurationVar(&window, "window", window, "how far back to look at jobs that began and ended")
	return cmd
}

func showStats(cmd *cobra.Command, shell cli.Shell, p *pool.Pool, request operation.StatsRequest) error {
	for _, name := range request.Queues {
		if err := p.Exists(cmd.Context(), jobs.HoldQueue, name); err != nil {
			return err
		}
	}
	found, err := p.Client.Queues().Stats(cmd.Context(), request)
	if err != nil {
		return err
	}
	switch *shell.Format {
	case cli.JSON, cli.YAML:
		return cli.View[operation.PoolStats]{}.One(shell.Out, *shell.Format, found)
	}
	return statsView.List(shell.Out, *shell.Format, found.ByQueue)
}

var statsView = cli.View[operation.QueueStats]{
	Header: []string{"QUEUE", "PENDING", "RUNNING", "OLDEST", "ENDED", "PER MINUTE", "OUTCOMES", "WAIT P50", "WAIT P95", "RUN P50", "RUN P95", "COST", "PAUSED"},
	Row: func(s operation.QueueStats) []string {
		oldest := ""
		if s.Oldest != nil {
			oldest = time.Since(*s.Oldest).Truncate(time.Second).String()
		}
		wait50, wait95 := spread(s.Lately.Wait)
		run50, run95 := spread(s.Lately.Run)
		return []string{
			s.Queue.Queue, strconv.Itoa(s.Pending), strconv.Itoa(s.Executing), oldest, strconv.Itoa(s.Lately.Ended),
			fmt.Sprintf("%.2f", s.Lately.PerMinute), outcomes(s.Lately.Outcomes), wait50, wait95, run50, run95,
			summary.Dollars(s.Lately.CostUSD), holds.Words(s.Paused),
		}
	},
	ID: func(s operation.QueueStats) string { return s.Queue.Queue },
}

// spread is the median and the 95th percentile; nothing where there are no times.
func spread(s operation.Spread) (p50, p95 string) {
	if s.Count == 0 {
		return "", ""
	}
	return summary.Took(s.P50), summary.Took(s.P95)
}

func outcomes(counts map[jobs.Outcome]int) string {
	var parts []string
	for _, o := range []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip} {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}
