package worker

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/jails"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// tokens are what the programs of one attempt have to send to the worker's
// listeners, instead of credentials. Each is good for one of them.
type tokens struct{ model, network string }

func newTokens() tokens {
	return tokens{model: "penstock-" + strings.ToLower(rand.Text()), network: strings.ToLower(rand.Text())}
}

// newJails returns the attempt's jails, none of which has started, and what they are refused.
func (a *attempt) newJails() (*jails.Refusals, *jails.Set) {
	hooks, rec := a.cfg.Hooks, a.rec
	to := jails.Observers{Refused: a.cfg.Refused, Tell: a.events.Put}
	if hooks.Violation != nil {
		to.Violation = func(v event.JailViolation) { hooks.Violation(rec, v) }
	}
	refused := jails.NewRefusals(a.name(), to)
	cfg := jails.Config{Diagnosed: a.cfg.diagnosed, Took: a.times.took, Refusals: refused, Result: a.out.Result, Tell: a.events.Put}
	if hooks.Jailed != nil {
		cfg.Started = func(took time.Duration, err error) { hooks.Jailed(a.job.Isolation, took, err) }
	}
	if hooks.Network != nil {
		cfg.Network = func(used event.JailNetwork) { hooks.Network(rec, used) }
	}
	return refused, jails.New(cfg)
}

// container reports whether the job's programs come from an image.
func (a *attempt) container() bool { return a.job.Isolation == jobs.IsolationContainer }

// launch collects what the adapter has to know.
func (a *attempt) launch(in confine.Jail, model confine.Way, adapter agent.Adapter) (agent.Launch, error) {
	var program agent.Program
	if !a.container() {
		var err error
		if program, err = a.cfg.Agents.Find(adapter.About().Name); err != nil {
			return agent.Launch{}, err
		}
	}
	l := agent.Launch{
		Job: a.job, ID: a.rec.ID, Session: a.rec.Session, Attempt: a.rec.Attempt,
		Cwd: in.Cwd, Files: in.Files, Program: program, Notice: a.notice, Depends: a.depends,
		Round: a.talk.round, Resume: a.talk.resume, Variable: confine.InsideVariable,
	}
	if len(a.cfg.Gates) > 0 {
		l.Gate, l.Key = "http://"+model.Address, a.tokens.model
	}
	if a.talk.round == 0 {
		about := adapter.About()
		if about.Protocol != "command" { // whose programs ask again
			l.Replies = a.conversation.Questions.Replies()
		}
		l = a.conversation.Launch(l, about.TakesPrompts(a.job.Agent.Interactive))
	}
	if failed := a.talk.failed; failed != nil {
		l = l.Failed(failed.Ended.Check, failed.Ended.Output)
	}
	return l, nil
}

// gateTo is the way to a model API. A program that names none may find the
// first of them useful.
func (a *attempt) gateTo(in confine.Jail, api string) *gate.Gate {
	if in.Offline() {
		return nil
	}
	if api == "" {
		api = "anthropic"
	}
	return a.cfg.Gates[api]
}

// redactor removes the values of the job's secrets, and the worker's own
// keys, from everything that leaves the worker. A secret that the worker does
// not have is an error; the redactor is good all the same.
func (a *attempt) redactor() (_ *redact.Redactor, missing error) {
	secrets := map[string]string{}
	maps.Copy(secrets, a.cfg.Keys)
	for _, name := range a.job.Secrets {
		value, ok := a.cfg.Secret(name)
		if !ok {
			missing = verdict.Ended(jobs.SecretMissing, "the worker has no secret %s: set PENSTOCK_SECRET_%s in its environment", name, name)
			continue
		}
		secrets[name] = value
	}
	// They give access to the worker while the attempt lasts.
	secrets[confine.InsideVariable], secrets["MODEL_TOKEN"], secrets["PROXY_TOKEN"] = a.inside.Token(), a.tokens.model, a.tokens.network
	r, skipped := redact.New(secrets)
	for _, s := range skipped {
		a.log.Warn("a secret cannot be removed from output", "name", s.Name, "why", s.Reason)
	}
	return r, missing
}

// diagnosed adds its cause to an error of a jail, if that is known.
func (c Config) diagnosed(err error) error {
	if c.Diagnose == nil {
		return err
	}
	if cause := c.Diagnose(err); cause != "" {
		return fmt.Errorf("%w (%s)", err, cause)
	}
	return err
}
