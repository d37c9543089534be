package pool

import (
	"log/slog"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/pullrequest"
)

// pullRequests returns what opens pull requests, and has the pool refuse those that it could
// not open, unless this process has no credential of a forge or is not the one to use it.
func pullRequests(p *Pool, cfg *cli.Config, log *slog.Logger) *pullrequest.Outbox {
	if !p.serves {
		return pullrequest.New(pullrequest.Config{})
	}
	forges, _ := cfg.Forges.Forges() // Load has validated them
	pulls := pullrequest.New(pullrequest.Config{
		Queue: p.Queue, Log: p.Log, Store: p.Store, Forges: forges, PublicURL: cfg.Forges.PublicURL, Logger: log,
	})
	if len(forges) > 0 {
		p.PullRequests = pulls.Check
	}
	return pulls
}
