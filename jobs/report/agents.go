package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// Labels of the jobs of a batch that runs each item several times: with several agents, to
// compare them, or with one, to keep the best, or several times with each of several agents.
const (
	ItemLabel  = "compare.item"  // the item
	AgentLabel = "compare.agent" // the agent: NAME, NAME@VERSION, NAME=MODEL or NAME@VERSION=MODEL
	TryLabel   = "compare.try"   // which of the tries, from 1
)

// An Agent is what one of the agents that a batch compares came to. An agent that tries an item
// several times succeeds with it if one try does: tries of one item are not independent of each
// other, and items are.
type Agent struct {
	Agent     string  `json:"agent" jsonschema:"The agent: NAME, NAME@VERSION, NAME=MODEL or NAME@VERSION=MODEL."`
	Items     int     `json:"items" jsonschema:"How many items it runs."`
	Judged    int     `json:"judged" jsonschema:"With how many of them it is known whether it succeeds, not counting runs that were cancelled or skipped."`
	Succeeded int     `json:"succeeded" jsonschema:"With how many of these it succeeded, where it tries them several times with at least one try."`
	Rate      float64 `json:"rate" jsonschema:"The part of the judged that succeeded."`
	Low       float64 `json:"low" jsonschema:"The lower end of the rate's 95 % confidence interval, by Wilson's method."`
	High      float64 `json:"high" jsonschema:"The upper end of it."`
	Only      int     `json:"only" jsonschema:"With how many items it alone succeeded."`
	Best      int     `json:"best" jsonschema:"With how many items it succeeded with the best result of all agents, or one as good as the best: by checks, then size of the change, then cost."`
	Tries     int     `json:"tries,omitempty" jsonschema:"Where it tries items several times: how many of the tries ended, not counting those that were cancelled or skipped."`
	GoodTries int     `json:"good_tries,omitempty" jsonschema:"How many of these tries succeeded."`

	Checks       int `json:"checks" jsonschema:"How many checks ran, of all its items."`
	ChecksPassed int `json:"checks_passed" jsonschema:"How many of them passed."`

	Lines    float64    `json:"lines" jsonschema:"How many lines a patch adds and removes, of those that change any: the median."`
	Seconds  float64    `json:"seconds" jsonschema:"How long an item took, from its submission on, in seconds: the median."`
	AgentRun float64    `json:"agent_seconds" jsonschema:"How long the agent ran for an item, in seconds: the median."`
	Usage    jobs.Usage `json:"usage" jsonschema:"The tokens of all items."`
	CostUSD  float64    `json:"cost_usd" jsonschema:"What all items cost."`

	lines, seconds, ran []float64
}

// A Comparison compares two agents by the items that both have ended.
type Comparison struct {
	A       string  `json:"a" jsonschema:"One agent."`
	B       string  `json:"b" jsonschema:"The other one."`
	Both    int     `json:"both" jsonschema:"With how many items both succeeded."`
	Neither int     `json:"neither" jsonschema:"With how many neither did."`
	OnlyA   int     `json:"only_a" jsonschema:"With how many only the one did."`
	OnlyB   int     `json:"only_b" jsonschema:"With how many only the other one did."`
	P       float64 `json:"p" jsonschema:"How likely so large a difference, or a larger one, is by chance if neither is better: the exact test of McNemar, two-sided."`
}

// An agentTally gathers what agents came to, in the order in which they were first seen.
type agentTally struct {
	agents []*Agent
	items  []string                    // in their order
	of     map[string]map[string]*runs // by item and agent
}

// agent returns the tally of an agent; nil: there are too many.
func (c *agentTally) agent(name string) *Agent {
	i := slices.IndexFunc(c.agents, func(a *Agent) bool { return a.Agent == name })
	if i < 0 && len(c.agents) == maxAgents {
		return nil
	}
	if i < 0 {
		i = len(c.agents)
		c.agents = append(c.agents, &Agent{Agent: name})
	}
	return c.agents[i]
}

// runs are what an agent has come to at an item.
func (c *agentTally) runs(item, agent string) *runs {
	if c.of == nil {
		c.of = map[string]map[string]*runs{}
	}
	if c.of[item] == nil {
		c.of[item] = map[string]*runs{}
		c.items = append(c.items, item)
	}
	if c.of[item][agent] == nil {
		c.of[item][agent] = &runs{}
	}
	return c.of[item][agent]
}

// add adds an item that an agent runs.
func (c *agentTally) add(e Entry) {
	if e.Agent == "" {
		return
	}
	a := c.agent(e.Agent)
	if a == nil {
		return
	}
	c.runs(e.Of, e.Agent).add(e.Outcome)
	if e.Outcome == "" {
		return
	}
	a.Usage, a.CostUSD = a.Usage.Add(e.Usage), jobs.AddUSD(a.CostUSD, e.CostUSD)
	a.Checks, a.ChecksPassed = a.Checks+e.Checks, a.ChecksPassed+e.ChecksPassed
	if e.Outcome == jobs.Cancellation || e.Outcome == jobs.Skip {
		return
	}
	if e.IsTry() {
		a.Tries++
	}
	if e.IsTry() && e.Outcome == jobs.Success {
		a.GoodTries++
	}
	a.seconds = append(a.seconds, e.Seconds)
	if e.Durations.Agent > 0 {
		a.ran = append(a.ran, e.Durations.Agent)
	}
	if n := e.Added + e.Removed; n > 0 {
		a.lines = append(a.lines, float64(n))
	}
}

// result is what the agents came to, the best first, and each pair of them.
func (c *agentTally) result(rows []Item) (agents []Agent, comparisons []Comparison) {
	for _, item := range c.items {
		judged := 0
		var good []string
		for name, r := range c.of[item] {
			a := c.agent(name)
			a.Items++
			if !r.settled() {
				continue
			}
			judged++
			a.Judged++
			if r.succeeded > 0 {
				good = append(good, name)
				a.Succeeded++
			}
		}
		if len(good) == 1 && judged > 1 {
			c.agent(good[0]).Only++
		}
	}
	c.countBest(rows)
	for _, a := range c.agents {
		a.Rate, a.Low, a.High = wilson(a.Succeeded, a.Judged)
		a.Lines, a.Seconds, a.AgentRun = median(a.lines), median(a.seconds), median(a.ran)
		agents = append(agents, *a)
	}
	slices.SortStableFunc(agents, func(a, b Agent) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.CostUSD, b.CostUSD)) })
	for i, a := range agents {
		for _, b := range agents[i+1:] {
			comparisons = append(comparisons, c.compare(a.Agent, b.Agent))
		}
	}
	return agents, comparisons
}

// countBest counts with how many items each agent has the best result, or one as good. So the order
// of agents decides nothing.
func (c *agentTally) countBest(rows []Item) {
	best := map[string]Item{}
	for i, is := range BestBy(rows, func(i Item) string { return i.Of }) {
		if is && rows[i].Outcome == jobs.Success {
			best[rows[i].Of] = rows[i]
		}
	}
	for i, is := range BestBy(rows, agentRuns) {
		first, known := best[rows[i].Of]
		if !is || !known || compareTries(rows[i], first) > 0 {
			continue
		}
		if a := c.agent(rows[i].Agent); a != nil {
			a.Best++
		}
	}
}

// agentRuns is the same for all runs of an item by one agent; "" for those of no agent.
func agentRuns(i Item) string {
	if i.Agent == "" {
		return ""
	}
	return i.Of + "\x00" + i.Agent
}

// compare compares two agents by the items that both have ended.
func (c *agentTally) compare(a, b string) Comparison {
	d := Comparison{A: a, B: b}
	for _, item := range c.items {
		one, other := c.of[item][a], c.of[item][b]
		if one == nil || other == nil || !one.settled() || !other.settled() {
			continue
		}
		switch good, better := one.succeeded > 0, other.succeeded > 0; {
		case good && better:
			d.Both++
		case good:
			d.OnlyA++
		case better:
			d.OnlyB++
		default:
			d.Neither++
		}
	}
	d.P = chance(d.OnlyA, d.OnlyB)
	return d
}

// wilson returns a rate and its 95 % confidence interval, which is right also for few items
// and for rates of 0 and 1. Of nothing it is all that is possible.
func wilson(good, all int) (rate, low, high float64) {
	if all == 0 {
		return 0, 0, 1
	}
	const z = 1.959964 // of the normal distribution, for 95 %
	n := float64(all)
	rate = float64(good) / n
	middle := (rate + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(rate*(1-rate)/n+z*z/(4*n*n))
	return rate, max(0, middle-half), min(1, middle+half)
}

// chance is how likely a split as uneven as this one, or more so, is where each of the two
// sides is as likely as the other.
func chance(a, b int) float64 {
	n := a + b
	logs := func(k int) float64 { l, _ := math.Lgamma(float64(k) + 1); return l }
	tail := 0.0
	for k := range min(a, b) + 1 {
		tail += math.Exp(logs(n) - logs(k) - logs(n-k) - float64(n)*math.Ln2)
	}
	return min(1, 2*tail)
}

// median is the middle of some numbers; 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// Percent is the rate, for people.
func (a Agent) Percent() string {
	if a.Judged == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*a.Rate)
}

// Interval is the confidence interval of the rate, for people.
func (a Agent) Interval() string {
	if a.Judged == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f–%.0f %%", 100*a.Low, 100*a.High)
}

// Passed is how many checks passed, for people.
func (a Agent) Passed() string {
	if a.Checks == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", a.ChecksPassed, a.Checks)
}

// CostOfSuccess is what all items cost for each that succeeded; 0: none did.
func (a Agent) CostOfSuccess() float64 {
	if a.Succeeded == 0 {
		return 0
	}
	return a.CostUSD / float64(a.Succeeded)
}

// Solved is with how many items it succeeded, for people, and with how many tries if there are several.
func (a Agent) Solved() string {
	text := fmt.Sprintf("%d of %d", a.Succeeded, a.Judged)
	if a.Tries > 0 {
		text += fmt.Sprintf(", with %d of %d tries", a.GoodTries, a.Tries)
	}
	return text
}

// A Row is what each agent made of one item, in the order of the report's agents; nil: it
// does not run it, or the report does not list it.
type Row struct {
	Of   string
	Runs []*Run
}

// A Run is what an agent made of an item: its only run, or the best of its tries. Where none of them
// has ended, it is the first.
type Run struct {
	*Item
	runs runs
}

// Facts are those of the run, for people, and with how many tries the agent succeeded if there are
// several.
func (r *Run) Facts() string {
	var words []string
	if r.Best {
		words = append(words, "best")
	}
	if r.runs.all > 1 {
		words = append(words, fmt.Sprintf("%d of %d tries", r.runs.succeeded, r.runs.all))
	}
	if facts := r.Item.Facts(); facts != "" {
		words = append(words, facts)
	}
	return strings.Join(words, " · ")
}

// Matrix is what each agent made of each item, of those that the report lists.
func (b *Report) Matrix() []Row {
	column := map[string]int{}
	for i, a := range b.Agents {
		column[a.Agent] = i
	}
	var rows []Row
	at := map[string]int{}
	for n, best := range BestBy(b.Rows, agentRuns) {
		item := &b.Rows[n]
		i, known := column[item.Agent]
		if !known {
			continue
		}
		if _, seen := at[item.Of]; !seen {
			at[item.Of] = len(rows)
			rows = append(rows, Row{Of: item.Of, Runs: make([]*Run, len(b.Agents))})
		}
		run := &rows[at[item.Of]].Runs[i]
		if *run == nil {
			*run = &Run{Item: item}
		}
		if best {
			(*run).Item = item
		}
		(*run).runs.add(item.Outcome)
	}
	return rows
}
