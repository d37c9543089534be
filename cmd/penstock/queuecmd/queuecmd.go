// Package queuecmd is the command queue: queues with their jobs, pauses and caps.
package queuecmd

import (
	"context"
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
)

// New returns the command queue.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Show, pause and resume queues"}
	cmd.AddCommand(ls(shell), stats(shell), caps(shell), drain(shell),
		holds.PauseCommand(shell, jobs.HoldQueue, "QUEUE", func(name string) string { return name }),
		holds.ResumeCommand(shell, jobs.HoldQueue, "QUEUE", func(name string) string { return name }))
	return cmd
}

var view = cli.View[operation.Queue]{
	Header: []string{"QUEUE", "PENDING", "DELAYED", "EXECUTING", "WAITING", "FINISHED", "CAP", "QUOTA", "OLDEST", "PAUSED"},
	Row: func(s operation.Queue) []string {
		most, quota, oldest := "", "", ""
		if s.Cap > 0 {
			most = strconv.Itoa(s.Cap)
		}
		if s.Quota > 0 {
			quota = strconv.Itoa(s.Quota)
		}
		if s.QuotaBytes > 0 {
			quota = strings.TrimPrefix(quota+", "+s.QuotaBytes.String(), ", ")
		}
		if s.Oldest != nil {
			oldest = time.Since(*s.Oldest).Truncate(time.Second).String()
		}
		return []string{
			s.Queue, strconv.Itoa(s.Pending), delayed(s), strconv.Itoa(s.Executing), strconv.Itoa(s.Waiting),
			strconv.Itoa(s.Finished), most, quota, oldest, holds.Words(s.Paused),
		}
	},
	ID: func(s operation.Queue) string { return s.Queue },
}

// delayed is how many jobs wait for a time, and how many of them for a model API or a budget.
func delayed(s operation.Queue) string {
	text := strconv.Itoa(s.Delayed)
	for _, held := range []struct {
		reason jobs.Reason
		n      int
	}{{jobs.QuotaWaiting, s.QuotaWaiting}, {jobs.KeyRefused, s.KeyRefused}, {jobs.BudgetWaiting, s.BudgetWaiting}, {jobs.BudgetParked, s.BudgetParked}} {
		if held.n > 0 {
			text += fmt.Sprintf(", %d %s", held.n, held.reason)
		}
	}
	return text
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the queues, with their jobs, and which are paused", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pool.List(cmd.Context(), shell, view, func(ctx context.Context, p *pool.Pool) ([]operation.Queue, error) {
				return pool.Collect(p.Client.Queues().List(ctx))
			})
		},
	}
}
