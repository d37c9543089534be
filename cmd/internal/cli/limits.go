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
	all, err := parsed(s.Caps, schedule.ParseCap)
	if err != nil {
		return nil, err
	}
	caps := schedule.Caps(all)
	return caps, caps.Check()
}

// JobQuotas are the quotas as values. Those of a checked configuration are right.
func (s ServeConfig) JobQuotas() (quota.Quotas, error) {
	all, err := parsed(s.Quotas, quota.Parse)
	if err != nil {
		return nil, err
	}
	quotas := quota.Quotas(all)
	return quotas, quotas.Check()
}

// parsed are the values of texts; none, and not nil, where there is no text.
func parsed[T any](texts []string, parse func(string) (T, error)) ([]T, error) {
	all := make([]T, 0, len(texts))
	for _, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (s ServeConfig) validateLimits() error {
	if _, err := s.JobQuotas(); err != nil {
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
