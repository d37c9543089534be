package pool

import (
	"log/slog"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/pullrequest"
	"github.com/penstock-run/penstock/jobs"
)

// pullRequests returns what opens pull requests, and what refuses those that it could not
// open: nil, where this process has no credential of a forge or is not the one to use it.
func pullRequests(p *Pool, cfg *cli.Config, log *slog.Logger) (*pullrequest.Outbox, func(jobs.Job) error) {
	if !p.serves {
		return pullrequest.New(pullrequest.Config{}), nil
	}
	forges, _ := cfg.Forges.Forges() // Load has validated them
	pulls := pullrequest.New(pullrequest.Config{
		Queue: p.Queue, Log: p.Log, Store: p.Store, Forges: forges, PublicURL: cfg.Forges.PublicURL, Logger: log,
	})
	if len(forges) == 0 {
		return pulls, nil
	}
	return pulls, pulls.Check
}
