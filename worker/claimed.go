package worker

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/jails"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/recorder"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/touched"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// claimed is what the parts of an attempt share: the claim, and where they report to.
// After the claim nothing of it changes but the writer, which begins with the log.
type claimed struct {
	cfg   *Config
	claim *queue.Claim
	store *artifact.Store // what it stores counts for the job
	rec   jobs.Record     // as the claim left it
	job   jobs.Job        // as it was submitted
	log   *slog.Logger
	began time.Time

	secrets *redact.Redactor // removes what must not leave the worker
	tokens  tokens           // let the attempt's programs in to the model API and to the network
	inside  *inside.Server   // the way from the agent's jail to its worker
	events  *recorder.Recorder
	writer  *session.Writer // nil: the log is not open

	out          *outcome.Outcome           // what the attempt leaves
	conversation *conversation.Conversation // what outlives the agent's processes
	salvages     outcome.Salvages           // those of earlier attempts
	refused      *jails.Refusals            // what the attempt's jails wanted and did not get
	jails        *jails.Set
	touched      *touched.Teller // which files the agent has changed
	times        stopwatch
	cleanup      cleanup
}

// newAttempt returns the attempt of a claim, which ends by end. The error says which of the job's
// secrets the worker does not have; the attempt can tell so.
func (w *Worker) newAttempt(claim *queue.Claim, end context.CancelCauseFunc) (a *attempt, missing error) {
	c, missing := newClaimed(&w.cfg, claim, w.log, end)
	c.times = stopwatch{w.cfg.Hooks.Stage, c.rec, c.out.Result}
	c.cleanup = cleanup{c.times, c.log, w.leftover}
	c.refused, c.jails = c.newJails()
	a = &attempt{of: c, rec: c.rec, tally: w.tally, preparation: c.newPreparation(), inbox: &inbox{of: c}}
	a.runs = &agentRuns{of: c, current: a.inbox.set}
	return a, missing
}

// newClaimed opens nothing. The attempt ends by end when its events cannot be stored.
func newClaimed(cfg *Config, claim *queue.Claim, log *slog.Logger, end context.CancelCauseFunc) (c *claimed, missing error) {
	rec := claim.Record()
	c = &claimed{
		cfg: cfg, claim: claim, store: artifact.Counting(cfg.Store, claim.Stored), rec: rec, job: claim.Job(), began: time.Now(), log: log.With(rec.LogFields()...),
		inside: inside.NewServer(), tokens: newTokens(), salvages: outcome.Salvages{Store: cfg.Store, Record: cfg.Queue.Get},
	}
	c.secrets, missing = c.redactor()
	c.events = recorder.New(c.secrets.Event, recorder.Hooks{Stored: cfg.Hooks.Events, Dropped: cfg.Hooks.Dropped}, func(err error) {
		end(verdict.Failed(jobs.StoreFailed, "append to the session's log", err))
	})
	c.out = outcome.New(outcome.Config{
		Store: c.store, Log: c.log, Job: c.job, Record: rec, Epoch: claim.Epoch(), Worker: cfg.Name,
		Secrets: c.secrets, Tell: c.events.Put, Assert: claim.Assert,
		CommitAuthor: cfg.CommitAuthor, CommitPlain: cfg.CommitPlain,
		Key: cfg.ReceiptKey, Release: cfg.Release, Policy: cfg.Policy, Mounts: sources(cfg.Mounts),
	})
	c.conversation = conversation.New(conversation.Config{
		Store: c.store, Log: c.log, Job: c.job, Record: rec, Epoch: claim.Epoch(), Worker: cfg.Name, Lost: claim.Previous() != nil,
		Secrets: c.secrets, Tell: c.events.Put, Assert: claim.Assert, Progressed: claim.Progressed,
	})
	c.touched = &touched.Teller{Store: overlap.Of(cfg.Queue.Workers()), Record: rec, Clean: c.clean, Log: c.log}
	return c, missing
}

// sources are the directories of the host that mounts show.
func sources(mounts []sandbox.Mount) (all []string) {
	for _, m := range mounts {
		all = append(all, m.Source)
	}
	return all
}

// name tells the attempt from all others of all jobs: its workspace and its
// jails are called so, and what a kill leaves of them is found by it.
func (c *claimed) name() string {
	return c.rec.ID + "." + strconv.FormatUint(c.claim.Epoch(), 10)
}

// append stores what must be in the session's log before it is acted on. It is the proof of
// the lease, too: the broker refuses the event of an attempt that another one has followed.
func (c *claimed) append(ctx context.Context, e jobs.Event) error {
	return c.writer.Append(ctx, c.secrets.Event(e))
}

// clean removes the values of secrets from what is not an event.
func (c *claimed) clean(text string) string {
	return string(c.secrets.Text([]byte(text)))
}

// tokens are what the programs of one attempt have to send to the worker's
// listeners, instead of credentials. Each is good for one of them.
type tokens struct{ model, network string }

func newTokens() tokens {
	return tokens{model: "penstock-" + strings.ToLower(rand.Text()), network: strings.ToLower(rand.Text())}
}

// redactor removes the values of the job's secrets, and the worker's own
// keys, from everything that leaves the worker. A secret that the worker does
// not have is an error; the redactor is good all the same.
func (c *claimed) redactor() (_ *redact.Redactor, missing error) {
	secrets := map[string]string{}
	for _, name := range slices.Concat(c.job.Secrets, c.job.HeaderSecrets()) {
		value, ok := c.cfg.Secret(name)
		if !ok {
			missing = verdict.Ended(jobs.SecretMissing, "the worker has no secret %s: set PENSTOCK_SECRET_%s in its environment", name, name)
			continue
		}
		secrets[name] = value
	}
	// They give access to the worker while the attempt lasts.
	secrets[confine.InsideVariable], secrets["MODEL_TOKEN"], secrets["PROXY_TOKEN"] = c.inside.Token(), c.tokens.model, c.tokens.network
	r, skipped := c.cfg.Keys.Redactor(secrets)
	for _, s := range skipped {
		c.log.Warn("a secret cannot be removed from output", "name", s.Name, "why", s.Reason)
	}
	return r, missing
}

// newJails returns the attempt's jails, none of which has started, and what they are refused.
func (c *claimed) newJails() (*jails.Refusals, *jails.Set) {
	hooks, rec := c.cfg.Hooks, c.rec
	to := jails.Observers{Refused: c.cfg.Refused, Tell: c.events.Put}
	if hooks.Violation != nil {
		to.Violation = func(v event.JailViolation) { hooks.Violation(rec, v) }
	}
	refused := jails.NewRefusals(c.name(), to)
	cfg := jails.Config{Diagnosed: c.cfg.diagnosed, Took: c.times.took, Refusals: refused, Result: c.out.Result, Tell: c.events.Put}
	if hooks.Jailed != nil {
		cfg.Started = func(took time.Duration, err error) { hooks.Jailed(c.job.Isolation, took, err) }
	}
	if hooks.Network != nil {
		cfg.Network = func(used event.JailNetwork) { hooks.Network(rec, used) }
	}
	return refused, jails.New(cfg)
}
