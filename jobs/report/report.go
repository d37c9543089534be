// Package report says what the jobs of a batch came to: their outcomes and the reasons for
// them, cost, tokens and times, and where their patches meet.
//
//	Entry ─Add─▶ Builder ─Report─▶ Report ─┬─ JSON
//	                                       └─ Markdown
//
// A results directory and a pool make the same report, each of the entries that it has. Text
// in it comes from agents and strangers: in Markdown it stands as text. Lists are cut where
// they grow with the batch, and say how many are left out. The package holds values only.
package report

import (
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
)

// A Report is the report of a batch.
type Report struct {
	Batch string `json:"batch" jsonschema:"Its name."`
	State string `json:"state" jsonschema:"running, completed if each item ended in success or skip, or failed; a results directory may also say interrupted or stopped."`
	Why   string `json:"why,omitempty" jsonschema:"Why it is in that state, if there is more to say."`

	Items   int `json:"items" jsonschema:"How many items it has: jobs, in a pool."`
	Done    int `json:"done" jsonschema:"How many of them have a result."`
	Missing int `json:"missing" jsonschema:"How many have none."`
	// Unread is how many results the report has only the record of.
	Unread int `json:"unread,omitempty" jsonschema:"How many results were not read, since they are too many: stages, changes and overlaps are of the others."`

	Started     time.Time  `json:"started" jsonschema:"When it began."`
	WallSeconds float64    `json:"wall_seconds" jsonschema:"How long it took, or has taken until now."`
	CostUSD     float64    `json:"cost_usd" jsonschema:"What its items cost."`
	LimitUSD    float64    `json:"limit_usd,omitempty" jsonschema:"What they may cost together, in US dollars; not there: no limit."`
	Usage       jobs.Usage `json:"usage" jsonschema:"The tokens that they used."`
	LimitTokens int64      `json:"limit_tokens,omitempty" jsonschema:"How many they may use together; not there: no limit."`

	Outcomes map[jobs.Outcome]int `json:"outcomes" jsonschema:"How many items have ended with each outcome."`
	// Reviews is only of a pool.
	Reviews map[jobs.ReviewState]int `json:"reviews,omitempty" jsonschema:"How many results are in each state of a review; only in a pool."`
	Reasons []Reason                 `json:"reasons" jsonschema:"The reasons for outcomes other than success, the most frequent first."`
	Stages  []Stage                  `json:"stages" jsonschema:"How long each stage of a job took."`
	Slowest []Item                   `json:"slowest" jsonschema:"The items that took longest, at most 10."`
	Bases   []string                 `json:"bases,omitempty" jsonschema:"The commits that the items began from."`

	Added     int `json:"added" jsonschema:"Lines that the patches add."`
	Removed   int `json:"removed" jsonschema:"Lines that they remove."`
	Unchanged int `json:"unchanged" jsonschema:"Results that change nothing."`

	Files     []File `json:"files" jsonschema:"The files that several patches change, those of the most patches first, at most 100."`
	MoreFiles int    `json:"more_files,omitempty" jsonschema:"How many more there are."`
	Pairs     []Pair `json:"pairs" jsonschema:"The patches that change the same files, those with conflicts first, at most 100."`
	MorePairs int    `json:"more_pairs,omitempty" jsonschema:"How many more there are; -1 if there were too many to compare them all."`
	// MergeOrder is of the results that batch apply would take, and not of several tries of an item.
	MergeOrder *mergeorder.Sequence `json:"merge_order,omitempty" jsonschema:"The order in which the results merge with the fewest conflicts, by the lines that they change; not there: fewer than two, or too many to compare. Of several tries of an item none is in it."`
	// MoreOrder counts what Fit has cut off.
	MoreOrder int `json:"more_order,omitempty" jsonschema:"How many more results that order has, which this answer has no room for."`
	// Running and MoreRunning are only of a pool.
	Running      []Pair  `json:"running,omitempty" jsonschema:"What items that run have in common with others, as workers have seen in their workspaces by now, those with conflicts first, at most 100. The other one, b, is an item that runs or has succeeded, or the id of a job of no item here. Only in a pool."`
	MoreRunning  int     `json:"more_running,omitempty" jsonschema:"How many more there are."`
	RunsCode     []Risky `json:"runs_code" jsonschema:"Changed files that may run code where a patch is applied, at most 100."`
	MoreRunsCode int     `json:"more_runs_code,omitempty" jsonschema:"How many more there are."`

	// Agents and Comparisons are of a batch that compares agents.
	Agents      []Agent      `json:"agents,omitempty" jsonschema:"The agents that the batch compares, the best first; their items are in rows, with of and agent."`
	Comparisons []Comparison `json:"comparisons,omitempty" jsonschema:"Each two of these agents."`

	// Tries is of a batch that runs each item several times to keep the best.
	Tries *Tries `json:"tries,omitempty" jsonschema:"What the tries came to, of a batch that runs each item several times to keep the best; they are in rows, with of and best."`

	Rows     []Item `json:"rows" jsonschema:"The items, in their order."`
	MoreRows int    `json:"more_rows,omitempty" jsonschema:"How many more there are, which this answer has no room for."`
}

// An Item is one item of a batch.
type Item struct {
	ID      string       `json:"id" jsonschema:"Its name in the batch."`
	Title   string       `json:"title,omitempty" jsonschema:"Its title."`
	Of      string       `json:"of,omitempty" jsonschema:"In a batch that runs each item several times: the item."`
	Agent   string       `json:"agent,omitempty" jsonschema:"In a batch that compares agents: the agent."`
	Try     int          `json:"try,omitempty" jsonschema:"Of several tries of an item, or of an agent at an item: which one, from 1."`
	Best    bool         `json:"best,omitempty" jsonschema:"Of several tries of an item, by all agents that it has: whether it is the best of those that have ended."`
	Job     string       `json:"job,omitempty" jsonschema:"The job's id."`
	Outcome jobs.Outcome `json:"outcome,omitempty" jsonschema:"How it ended; not there: it has no result."`
	Reason  jobs.Reason  `json:"reason,omitempty" jsonschema:"Why, if it did not succeed."`
	// Review is "" of an item in a results directory.
	Review       jobs.ReviewState `json:"review,omitempty" jsonschema:"What was decided about its result: unreviewed, accepted, rejected or delivered; only in a pool."`
	Checks       int              `json:"checks,omitempty" jsonschema:"How many checks ran in its last attempt."`
	ChecksPassed int              `json:"checks_passed,omitempty" jsonschema:"How many of them passed."`
	Files        int              `json:"files" jsonschema:"How many files its patch changes."`
	Added        int              `json:"added" jsonschema:"Lines that it adds."`
	Removed      int              `json:"removed" jsonschema:"Lines that it removes."`
	Seconds      float64          `json:"seconds" jsonschema:"How long it took, from its submission on."`
	CostUSD      float64          `json:"cost_usd" jsonschema:"What all its attempts cost."`
}

// A Reason is one for which items did not succeed.
type Reason struct {
	Reason  jobs.Reason `json:"reason" jsonschema:"The reason."`
	Items   int         `json:"items" jsonschema:"How many items ended for it."`
	CostUSD float64     `json:"cost_usd" jsonschema:"What they cost."`
	Advice  string      `json:"advice,omitempty" jsonschema:"What to do about it."`
	IDs     []string    `json:"ids" jsonschema:"The first 20 of them."`
}

// A Stage is a part of the way of a job, and how long it took, in seconds.
type Stage struct {
	Name string  `json:"stage" jsonschema:"queue, provision, jail, agent, check, collect, or total."`
	P50  float64 `json:"p50" jsonschema:"The median, in seconds."`
	P90  float64 `json:"p90" jsonschema:"What 90 % took at most."`
	Max  float64 `json:"max" jsonschema:"The longest."`
}

// A File is one that several patches change.
type File struct {
	Path    string   `json:"path" jsonschema:"Its path."`
	Patches int      `json:"patches" jsonschema:"How many patches change it."`
	IDs     []string `json:"ids" jsonschema:"The first 20 items of them."`
}

// A Pair is two items whose patches change the same files. A merge of both would stop at
// Conflicts.
type Pair struct {
	A             string   `json:"a" jsonschema:"One item."`
	B             string   `json:"b" jsonschema:"The other one."`
	Files         []string `json:"files" jsonschema:"The first 20 files that both change."`
	MoreFiles     int      `json:"more_files,omitempty" jsonschema:"How many more there are."`
	Conflicts     []string `json:"conflicts" jsonschema:"The first 20 of all these files in which they change the same lines."`
	MoreConflicts int      `json:"more_conflicts,omitempty" jsonschema:"How many more there are."`
}

// A Risky is a changed file that may run code where the patch is applied.
type Risky struct {
	ID   string `json:"id" jsonschema:"The item."`
	Path string `json:"path" jsonschema:"The file."`
	Why  string `json:"why" jsonschema:"What it is."`
}

// A Tally is how often something came up.
type Tally struct {
	Name  string
	Count int
}

var outcomeOrder = []jobs.Outcome{jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip}

// Rate is the share of the finished items that succeeded, as text.
func (b *Report) Rate() string {
	if b.Done == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(b.Outcomes[jobs.Success])/float64(b.Done))
}

// Tallies counts the items by outcome, the good ones first.
func (b *Report) Tallies() (counts []Tally) {
	other := b.Done
	for _, o := range outcomeOrder {
		if n := b.Outcomes[o]; n > 0 {
			counts = append(counts, Tally{string(o), n})
			other -= n
		}
	}
	if other > 0 {
		counts = append(counts, Tally{"other", other})
	}
	if b.Missing > 0 {
		counts = append(counts, Tally{"missing", b.Missing})
	}
	return counts
}

// NameOf is the name by which [Report.Tallies] counts an item.
func NameOf(o jobs.Outcome) string {
	switch {
	case o == "":
		return "missing"
	case !known(o):
		return "other"
	}
	return string(o)
}
