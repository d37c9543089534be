package cli

import (
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// Spending are the budgets as values. Those of a checked configuration are right.
func (s ServeConfig) Spending() (ledger.Budgets, error) {
	all, err := ledger.ParseAll(s.Budgets)
	if all == nil {
		all = ledger.Budgets{} // none, where nil would leave those that are set
	}
	return all, err
}

// Limits are the caps as values. Those of a checked configuration are right.
func (s ServeConfig) Limits() (schedule.Caps, error) {
	caps := schedule.Caps{}
	for _, text := range s.Caps {
		c, err := schedule.ParseCap(text)
		if err != nil {
			return nil, err
		}
		caps = append(caps, c)
	}
	return caps, caps.Check()
}

// OpenJobs are the quotas as values. Those of a checked configuration are right.
func (s ServeConfig) OpenJobs() (quota.Quotas, error) {
	var all quota.Quotas
	for _, text := range s.Quotas {
		q, err := quota.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, all.Check()
}

func (s ServeConfig) validateLimits() error {
	if _, err := s.OpenJobs(); err != nil {
		return Usage("", "serve.quotas: %w", err)
	}
	if _, err := s.Limits(); err != nil {
		return Usage("see docs/explanation/scheduling.md", "serve.caps: %w", err)
	}
	if _, err := s.Spending(); err != nil {
		return Usage("see docs/how-to/budgets.md", "serve.budgets: %w", err)
	}
	return nil
}
