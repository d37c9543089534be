// Package outcome keeps what an attempt leaves: it takes the changes out of the
// workspace, stores them, reads them back, and writes the job's result.
//
//	workspace ──Collect──▶ patch, commits, files ──store, read back──▶ result ──Deliver──▶ branch
//	    └──Salvage──▶ what an attempt without a success has done
//
// An [Outcome] is the only writer of the attempt's [jobs.Result]. Nothing that is in
// a result is only on this host.
package outcome

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/receipt"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// Config says whose outcome it is, and where it is kept.
type Config struct {
	Store  *artifact.Store
	Log    *slog.Logger
	Job    jobs.Job
	Record jobs.Record // as the claim left it
	Epoch  uint64
	Worker string
	// Secrets removes what must not leave the worker.
	Secrets *redact.Redactor
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
	// Assert proves that the attempt still has its lease.
	Assert func(context.Context) (time.Time, error)
	// CommitAuthor replaces author and committer of what is delivered; empty keeps
	// them. CommitPlain leaves out the trailers that name job and session.
	CommitAuthor string
	CommitPlain  bool
	// Key signs the receipt; nil: there is none. Release, Policy and Mounts are the worker's,
	// for the receipt.
	Key     ed25519.PrivateKey
	Release string
	Policy  any
	Mounts  []string
}

// An Outcome is that of one attempt.
type Outcome struct {
	// Result is what the attempt's result says so far.
	Result *Result

	cfg Config
	// stored is the change that is kept as the result; nil: none is, or it is empty.
	stored *stored
	// saved is what was salvaged; nil: nothing was.
	saved  *jobs.Salvage
	draft  Draft
	commit string // that the branch has got; empty: none was made
}

// New returns the outcome of an attempt that has done nothing yet.
func New(cfg Config) *Outcome {
	return &Outcome{cfg: cfg, Result: newResult(cfg.Record)}
}

// Stored reports whether a change is kept as the result.
func (o *Outcome) Stored() bool { return o.stored != nil }

// Attach lists a file that the session's log has.
func (o *Outcome) Attach(file jobs.Artifact) { o.Result.Attach(file) }

// SetValue notes the value that the agent has set.
func (o *Outcome) SetValue(value json.RawMessage) { o.Result.SetValue(value) }

// End writes the attempt's end into the result and stores it, with a receipt of a job that
// has a repository. Events is the chain of the session's events.
func (o *Outcome) End(ctx context.Context, v jobs.Ended, events receipt.Chain) error {
	o.Result.change(func(r *jobs.Result) {
		r.Outcome, r.Reason, r.Message = v.Outcome, v.Reason, v.Message
		r.Worker, r.Attempts = o.cfg.Worker, o.cfg.Record.Attempt
		r.Model = o.clean(r.Model) // it may quote the agent, as events do
		r.Durations.Total = time.Since(o.cfg.Record.Submitted).Seconds()
	})
	if err := o.sign(ctx, events); err != nil {
		return err
	}
	return o.cfg.Store.PutResult(ctx, o.cfg.Epoch, o.Result.Now())
}

// sign stores the receipt of the result as it is.
func (o *Outcome) sign(ctx context.Context, events receipt.Chain) error {
	if o.cfg.Key == nil || o.cfg.Job.Repo.URL == "" {
		return nil
	}
	signed, err := receipt.Sign(o.cfg.Key, receipt.Attempt{
		Job: o.cfg.Job, Record: o.cfg.Record, Epoch: o.cfg.Epoch, Result: o.Result.Now(), Commit: o.commit,
		Worker: o.cfg.Worker, Release: o.cfg.Release, Policy: o.cfg.Policy, Mounts: o.cfg.Mounts, Events: events, Finished: time.Now(),
	})
	if err != nil {
		return fmt.Errorf("sign the receipt: %w", err)
	}
	file, err := o.cfg.Store.Put(ctx, o.cfg.Record.ID, o.cfg.Epoch, receipt.Name, bytes.NewReader(signed))
	if err == nil {
		o.Result.Attach(file)
	}
	return err
}

// clean removes the values of secrets from what is not an event.
func (o *Outcome) clean(text string) string { return string(o.cfg.Secrets.Text([]byte(text))) }
