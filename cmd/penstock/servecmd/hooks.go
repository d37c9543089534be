package servecmd

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/dispatcher/hooks"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// byHook is the word for what webhooks change.
const byHook = "hook"

// openHooks returns what makes jobs of webhooks; nil if the settings have none.
func openHooks(shell cli.Shell, p *pool.Pool) (http.Handler, error) {
	if len(shell.Config.Hooks) == 0 {
		return nil, nil
	}
	server, err := hooks.Open(hooks.Config{
		Rules: shell.Config.Hooks,
		Submit: func(ctx context.Context, job jobs.Job) (operation.Submitted, error) {
			return p.Submit(ctx, job, byHook)
		},
		Pool: followed{p.Client.As(byHook), p.Log},
		// Among the submissions that the pool has refused people find it, and may retry it.
		File: func(ctx context.Context, r hooks.Refusal) error {
			job, err := json.Marshal(r.Job)
			if err != nil {
				return err
			}
			return p.Queue.Reject(ctx, queue.Submission{ID: jobs.NewID(), Tenant: shell.Config.Tenant, At: time.Now().UTC(), Data: job}, r.Reason)
		},
		Logger: p.Logger.With(servicelog.Component(servicelog.InHTTP)),
	})
	if err != nil {
		return nil, cli.Usage("docs/how-to/webhooks.md describes a hook", "%w", err)
	}
	return server, nil
}

// followed is the jobs of the pool, as hooks see and change them: by requests, which are
// in the audit log.
type followed struct {
	client *client.Client
	log    *session.Log
}

// List is that of [hooks.Pool].
func (f followed) List(ctx context.Context, state jobs.State, keep func(jobs.Record) bool) (kept []jobs.Record, err error) {
	for rec, err := range f.client.List(ctx, operation.ListRequest{State: state}) {
		if err != nil {
			return nil, err
		}
		if keep(rec) {
			kept = append(kept, rec)
		}
	}
	return kept, nil
}

// Get is that of [hooks.Pool].
func (f followed) Get(ctx context.Context, id string) (jobs.Record, error) {
	return f.client.Get(ctx, id)
}

// Asked is that of [hooks.Pool].
func (f followed) Asked(ctx context.Context, rec jobs.Record) ([]dialog.Asked, error) {
	past, err := f.log.Past(ctx, rec.Session, rec.ID)
	if err != nil {
		return nil, err
	}
	return past.Asks, nil
}

// Cancel is that of [hooks.Pool].
func (f followed) Cancel(ctx context.Context, id string) error {
	_, err := f.client.Cancel(ctx, id)
	return err
}

// Send is that of [hooks.Pool].
func (f followed) Send(ctx context.Context, id string, m control.Message) error {
	_, err := f.client.Send(ctx, id, m)
	return err
}
