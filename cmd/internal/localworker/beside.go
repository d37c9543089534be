package localworker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
)

// Beside runs a dispatcher and a worker beside a command whose pool is its own, until the
// pool is closed. A pool that serves others has them already. That of another command
// takes no jobs, since it may end before they do.
func Beside(ctx context.Context, shell cli.Shell, p *pool.Pool, slots int, work ...jobs.Job) (context.Context, error) {
	if !p.Own() {
		if p.Owner != "" && p.Owner != "serve" {
			return nil, cli.Fail(cli.ExitUnexpected, "wait for it, use another --data, or run penstock serve so that both can use it",
				"data directory %s is in use by penstock %s", shell.Config.Data, p.Owner)
		}
		return ctx, nil
	}
	for _, job := range work { // no other worker serves them
		if err := installed(shell, job.Agent); err != nil {
			return nil, err
		}
		for _, need := range job.Needs {
			if !slices.Contains(shell.Config.Worker.Labels, need) {
				return nil, cli.Usage("declare that this host has it: PENSTOCK_WORKER_LABELS="+strings.Join(job.Needs, ",")+"; or use --server",
					"the job needs %s, and this command's own worker is the only one", need)
			}
		}
		if queue := job.WithDefaults().Queue; !slices.Contains(shell.Config.Worker.Queues, queue) {
			shell.Config.Worker.Queues = append(slices.Clone(shell.Config.Worker.Queues), queue)
		}
	}
	shell.Config.Worker.Drain = 0 // a user who interrupts the command wants it to end
	w, err := maker{shell: shell, pool: p, attended: true}.worker(ctx, slots)
	if err != nil {
		return nil, err
	}
	return p.Start(ctx, p.Answering, p.Dispatcher.Run, w.Run), nil
}

// installed refuses an agent whose version this host does not have.
func installed(shell cli.Shell, a jobs.Agent) error {
	if a.Version == "" || slices.Contains(workerparts.Agents(shell.Config).Labels(), jobs.VersionLabel(a.Name, a.Version)) {
		return nil
	}
	return cli.Fail(cli.ExitNotFound, fmt.Sprintf("install it: penstock agent install %s@%s; or use --server", a.Name, a.Version),
		"the job's agent is %s@%s, which is not installed for this command's own worker, the only one", a.Name, a.Version)
}
