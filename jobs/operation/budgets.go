package operation

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A BudgetRequest asks for budgets: those that jobs share, and a job's own.
type BudgetRequest struct {
	Job   string `json:"job,omitempty" jsonschema:"Return the own budget of this job, too, if it has one: its id, or what only it begins or ends with."`
	Batch string `json:"batch,omitempty" jsonschema:"Return the budget of this batch, too, if its jobs have one."`
}

func (r BudgetRequest) check() error {
	if r.Batch == "" {
		return nil
	}
	return jobs.CheckToken("batch", r.Batch)
}

// A Budget is what a job, or those with something in common, may spend, and what was spent of
// it in its present period. That of a job that runs is as of its last heartbeat.
type Budget struct {
	Key  string     `json:"key" jsonschema:"Whose it is: queue:NAME, key:API, pool, batch:ID or job:ID."`
	Per  string     `json:"per,omitempty" jsonschema:"The period, by UTC: hour, day or month; not there: it is for ever."`
	Next *time.Time `json:"next,omitempty" jsonschema:"When the next period begins, with nothing spent."`

	LimitUSD    float64 `json:"limit_usd,omitempty" jsonschema:"What may be spent, in US dollars; not there: no limit."`
	SpentUSD    float64 `json:"spent_usd" jsonschema:"What was spent, in US dollars."`
	LeftUSD     float64 `json:"left_usd,omitempty" jsonschema:"What is left of the limit, in US dollars."`
	LimitTokens int64   `json:"limit_tokens,omitempty" jsonschema:"How many tokens may be used; not there: no limit."`
	SpentTokens int64   `json:"spent_tokens" jsonschema:"How many tokens were used."`
	LeftTokens  int64   `json:"left_tokens,omitempty" jsonschema:"How many tokens are left of the limit."`
	Share       float64 `json:"share" jsonschema:"Which part of the limit is spent; of two limits, that of which more is. 1 is all of it. Jobs that ran when it was reached may have spent a little more."`
}

// A BudgetList has budgets.
type BudgetList struct {
	Budgets []Budget `json:"budgets" jsonschema:"The budgets."`
}
