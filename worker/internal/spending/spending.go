// Package spending knows what the runs of an agent in one attempt used together, and
// tells the session when that comes to the job's budget.
package spending

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Config is what the spending of an attempt has from it.
type Config struct {
	Record jobs.Record
	Budget jobs.Budget
	Shared []gate.Purse // budgets that the job shares with others
	// Keyed are those of single keys, by the key's name.
	Keyed       map[string][]gate.Purse
	Policy, Job gate.Allowed // what calls may ask for
	// Patience is how long a call may wait for the limits of the provider.
	Patience time.Duration
	Token    string // with which programs of the jail are let in to the gate
	// Tell takes events of the session, and Clean removes secrets from a text.
	Tell  func(...event.Event)
	Clean func(string) string
	// Refused is told what the gate did not let through.
	Refused func(gate.Violation)
	// Reached is told when most of the budget is spent, and when all of it is; nil: no one
	// is.
	Reached func(rec jobs.Record, spent bool)
}

// A Spending is what an attempt used. The zero value has used nothing.
type Spending struct {
	cfg   Config
	meter *gate.Session // what went through the gate; nil: there is none
	total agent.Total   // what the agent itself told, of all runs
}

// Ended is how an attempt ends because the job's own budget is spent, which is so much in words.
func Ended(b jobs.Budget, allowed string) error {
	text := fmt.Sprintf("the budget of %s is spent", allowed)
	if b.OnSpent != jobs.SpentParks {
		return verdict.Ended(jobs.BudgetExceeded, "%s", text)
	}
	end := jobs.BudgetParked.Ended(text)
	end.Wait = jobs.MaxRetryAfter
	return &verdict.EndedError{Ended: end}
}

// Afford returns how the attempt of a job ends that has nothing left of its own budget, and is to be
// parked then; nil: it has, or it is not.
func Afford(rec jobs.Record, b jobs.Budget) error {
	own := gate.NewSession(rec.ID, "", limits(rec, b))
	select {
	case <-own.Spent():
		if b.OnSpent == jobs.SpentParks {
			return Ended(b, own.Allowed())
		}
	default:
	}
	return nil
}

// limits are those of the job's own budget, with what earlier attempts used.
func limits(rec jobs.Record, b jobs.Budget) gate.Limits {
	return gate.Limits{Tokens: b.Tokens, USD: b.USD, Used: rec.SpentBefore.Usage, UsedUSD: rec.SpentBefore.CostUSD}
}

// Meter returns the session that measures what goes through the gate; nil: there is none.
func (s *Spending) Meter() *gate.Session { return s.meter }

// Add adds what one run of the agent told.
func (s *Spending) Add(run agent.Total) {
	s.total.Usage = s.total.Usage.Add(run.Usage)
	s.total.CostUSD = jobs.AddUSD(s.total.CostUSD, run.CostUSD)
}

// Heard adds what one run told of the job's work, and with which model that was done.
func (s *Spending) Heard(run agent.Total) {
	s.Add(run)
	s.total.Model = run.Model
}

// Spent returns what the attempt has used, with a run that is not over, and the model: as
// the gate counted it, or as the agent reports it where nothing went through the gate.
func (s *Spending) Spent(run agent.Total) (jobs.Spent, string) {
	all := jobs.Spent{Usage: s.total.Usage.Add(run.Usage), CostUSD: jobs.AddUSD(s.total.CostUSD, run.CostUSD)}
	model := cmp.Or(run.Model, s.total.Model)
	if s.meter != nil {
		if m := s.meter.Meter(); m.Calls > 0 {
			return jobs.Spent{Usage: m.Usage, CostUSD: m.CostUSD}, m.Model
		}
	}
	return all, model
}

// Measure makes the meter of what goes through the gate, where there is none yet: the
// budget is for all runs of the agent together, in all attempts.
func (s *Spending) Measure(cfg Config) {
	if s.meter != nil {
		return
	}
	s.cfg = cfg
	l := limits(cfg.Record, cfg.Budget)
	l.Shared, l.Keyed, l.Queue, l.Patience, l.Policy, l.Job = cfg.Shared, cfg.Keyed, cfg.Record.Queue, cfg.Patience, cfg.Policy, cfg.Job
	s.meter = gate.NewSession(cfg.Record.ID, gate.Key(cfg.Token), l)
	s.meter.Refused, s.meter.Budget, s.meter.Unpriced, s.meter.Moved = cfg.Refused, s.reached, s.unpriced, s.moved
	s.meter.Nearly = s.nearly
	select {
	case <-s.meter.Spent(): // by earlier attempts
		s.reached(true)
	default:
	}
}

func (s *Spending) unpriced(model string) {
	s.cfg.Tell(event.Make(event.Notice{Type: "price", Text: fmt.Sprintf(
		"model %s has no price, and is charged as the dearest of its provider; the setting prices names what it costs", s.cfg.Clean(model))}))
}

// nearly tells that most of a budget is spent that the job shares.
func (s *Spending) nearly(p gate.Purse) {
	b := s.spent()
	b.Of = p.Name()
	s.cfg.Tell(event.Make(event.BudgetWarned(b)))
}

// moved tells that the calls go on with another key.
func (s *Spending) moved(from, to string) {
	s.cfg.Tell(event.Make(event.Notice{Type: "key", Text: fmt.Sprintf("the model API is called with key %s now, instead of %s", to, from)}))
}

// Exhausted tells that a budget is spent that the job shares.
func (s *Spending) Exhausted(p gate.Purse) {
	b := s.spent()
	b.Of = p.Name()
	s.cfg.Tell(event.Make(event.BudgetExceeded(b)))
}

// spent is what the job has used by now.
func (s *Spending) spent() event.Budget {
	m := s.meter.Meter()
	used := s.cfg.Record.SpentBefore.Add(jobs.Spent{Usage: m.Usage, CostUSD: m.CostUSD})
	return event.Budget{USD: used.CostUSD, Tokens: used.Usage.Total()}
}

// reached tells that most of the job's budget is spent, or all of it.
func (s *Spending) reached(spent bool) {
	b := s.spent()
	b.LimitUSD, b.LimitTokens = s.cfg.Budget.USD, s.cfg.Budget.Tokens
	if spent {
		s.cfg.Tell(event.Make(event.BudgetExceeded(b)))
	} else {
		s.cfg.Tell(event.Make(event.BudgetWarned(b)))
	}
	if s.cfg.Reached != nil {
		s.cfg.Reached(s.cfg.Record, spent)
	}
}
