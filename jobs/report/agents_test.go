package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/report"
)

// Ten items by three agents: a succeeds with eight, b with two of these and one of its own,
// c is not through. The intervals are those of the literature.
func TestAgents(t *testing.T) {
	b := report.New(report.Report{Batch: "n", State: "running"})
	stat := &patchstat.Stat{Added: 3, Removed: 1, Files: []patchstat.File{{Path: "f"}}}
	for i := range 10 {
		for agent, good := range map[string]bool{"a": i < 8, "b|x": i < 2 || i == 9, "c": false} {
			r := jobs.Result{Outcome: jobs.Failure, CostUSD: 0.5, Usage: jobs.Usage{Input: 10}, Durations: jobs.Durations{Total: float64(10 + i), Agent: 5}}
			r.Checks = []jobs.Check{{Exit: 1}, {Exit: 0}}
			if good {
				r.Outcome, r.Checks[0].Exit = jobs.Success, 0
			}
			if agent == "c" && i > 0 {
				r.Outcome = jobs.Cancellation
			}
			e := report.Of("t", r, stat)
			e.ID, e.Of, e.Agent = fmt.Sprint(i, "-", agent), fmt.Sprint(i), agent
			if agent == "c" && i == 9 {
				e = report.Entry{Item: report.Item{ID: e.ID, Of: e.Of, Agent: agent}}
			}
			b.Add(e)
		}
	}
	made := b.Report()
	var shown []string
	for _, a := range made.Agents {
		shown = append(shown, fmt.Sprintf("%s: %d/%d of %d, %.2f (%.3f–%.3f), %d alone, %d/%d checks, %v lines, %v s, %v s, %d tokens, $%v", a.Agent, a.Succeeded, a.Judged, a.Items, a.Rate, a.Low, a.High, a.Only,
			a.ChecksPassed, a.Checks, a.Lines, a.Seconds, a.AgentRun, a.Usage.Total(), a.CostUSD))
	}
	if got := strings.Join(shown, "\n"); got != `a: 8/10 of 10, 0.80 (0.490–0.943), 6 alone, 18/20 checks, 4 lines, 14.5 s, 5 s, 100 tokens, $5
b|x: 3/10 of 10, 0.30 (0.108–0.603), 1 alone, 13/20 checks, 4 lines, 14.5 s, 5 s, 100 tokens, $5
c: 0/1 of 10, 0.00 (0.000–0.793), 0 alone, 9/18 checks, 4 lines, 10 s, 5 s, 90 tokens, $4.5` {
		t.Errorf("got\n%s", got)
	}
	if len(made.Comparisons) != 3 {
		t.Fatalf("%d comparisons", len(made.Comparisons))
	}
	if c := made.Comparisons[0]; c.Both != 2 || c.OnlyA != 6 || c.OnlyB != 1 || c.Neither != 1 || fmt.Sprintf("%.4f", c.P) != "0.1250" {
		t.Errorf("a and b: %+v", c)
	}
	if c := made.Comparisons[2]; c.Neither != 0 || c.OnlyA != 1 || c.P != 1 {
		t.Errorf("b and c: %+v", c)
	}
	if len(made.Files)+len(made.Pairs) > 0 {
		t.Errorf("patches of one item overlap: %+v", made.Pairs)
	}
	var text strings.Builder
	if err := made.Markdown(&text, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| b\\|x | 3 of 10 | 30 % | 11–60 % | 1 | 3 | 13 of 20 |", "| a, b\\|x | 2 | 6 | 1 | 1 | 0.125 |", "| item | a | b\\|x | c |\n|---|---|---|---|\n",
		"| 0 | success · 2/2 checks · +3 −1 · 10 s · $0.50 | success · ", "| 9 | failure · 1/2 checks", " | missing |\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// Two agents try three items twice. Agents are judged by items, which one try solves; which agent has the
// best of an item does not depend on their order.
func TestTriesOfAgents(t *testing.T) {
	b := report.New(report.Report{Batch: "n"})
	for _, run := range []struct {
		item, agent string
		try, lines  int
		outcome     jobs.Outcome
	}{
		{"1", "a", 1, 5, jobs.Failure}, {"1", "a", 2, 3, jobs.Success}, {"1", "b@1.0.0", 1, 2, jobs.Success}, {"1", "b@1.0.0", 2, 2, jobs.Success},
		{"2", "a", 1, 4, jobs.Success}, {"2", "a", 2, 9, jobs.Cancellation}, {"2", "b@1.0.0", 1, 1, jobs.Failure}, {"2", "b@1.0.0", 2, 1, jobs.Failure},
		{"3", "a", 1, 4, jobs.Success}, {"3", "a", 2, 7, jobs.Success}, {"3", "b@1.0.0", 1, 4, jobs.Success}, {"3", "b@1.0.0", 2, 1, ""},
		{"4", "a", 1, 1, jobs.Failure}, {"4", "a", 2, 1, ""}, {"4", "b@1.0.0", 1, 1, jobs.Failure}, {"4", "b@1.0.0", 2, 1, jobs.Failure},
	} {
		e := report.Of("t", jobs.Result{Outcome: run.outcome, CostUSD: 1}, &patchstat.Stat{Added: run.lines, Files: []patchstat.File{{Path: "f"}}})
		e.Label(map[string]string{report.ItemLabel: run.item, report.AgentLabel: run.agent, report.TryLabel: fmt.Sprint(run.try)})
		e.ID = fmt.Sprint(run.item, "-", run.agent, "-try", run.try)
		b.Add(e)
	}
	made := b.Report()
	var shown, best []string
	for _, a := range made.Agents {
		shown = append(shown, fmt.Sprintf("%s: %s of %d items, %s, %d alone, %d best, $%v", a.Agent, a.Solved(), a.Items, a.Percent(), a.Only, a.Best, a.CostUSD))
	}
	for _, row := range made.Rows {
		if row.Best {
			best = append(best, row.ID)
		}
	}
	if got := strings.Join(shown, "\n"); got != `a: 3 of 3, with 4 of 6 tries of 4 items, 100 %, 1 alone, 2 best, $7
b@1.0.0: 2 of 4, with 3 of 7 tries of 4 items, 50 %, 0 alone, 2 best, $7` {
		t.Errorf("got\n%s", got)
	}
	if got := strings.Join(best, " "); got != "1-b@1.0.0-try1 2-a-try1 3-a-try1 4-a-try1" {
		t.Errorf("the best are %s", got)
	}
	if *made.Tries != (report.Tries{Items: 4, Runs: 16, Solved: 3, Succeeded: 7, Failed: 7}) {
		t.Errorf("tries %+v", made.Tries)
	}
	if c := made.Comparisons[0]; c.Both != 2 || c.OnlyA != 1 || c.OnlyB != 0 || c.Neither != 0 {
		t.Errorf("a and b: %+v", c)
	}
	var text strings.Builder
	if err := made.Markdown(&text, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| item | a | `b@1.0.0` |\n", "| `b@1.0.0` | 2 of 4, with 3 of 7 tries | 50 % |",
		"| 1 | success · 1 of 2 tries · +3 −0 · – · $1.00 | success · best · 2 of 2 tries · +2 −0 · – · $1.00 |",
		"| 3 | success · best · 2 of 2 tries · +4 −0 · – · $1.00 | success · 1 of 2 tries · +4 −0 · – · $1.00 |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// Costs of less than a cent can be compared.
func TestDollars(t *testing.T) {
	for v, want := range map[float64]string{0: "–", 0.000034: "< $0.0001", 0.00012: "$0.00012", 0.0078: "$0.0078", 0.0094: "$0.0094", 0.00999: "$0.01", 0.01: "$0.01", 0.014: "$0.01", 12.345: "$12.35"} {
		if got := report.Dollars(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// A batch of one agent compares nothing.
func TestNoAgents(t *testing.T) {
	b := report.New(report.Report{Batch: "n"})
	b.Add(report.Of("t", jobs.Result{ID: "1", Outcome: jobs.Success}, &patchstat.Stat{}))
	made := b.Report()
	if made.Agents != nil || made.Comparisons != nil || made.Matrix() != nil {
		t.Errorf("%+v", made)
	}
}

// Labels of jobs, which strangers may write, make no report that grows with their square.
func TestTooManyAgents(t *testing.T) {
	b := report.New(report.Report{Batch: "n"})
	for i := range 2000 {
		e := report.Of("t", jobs.Result{ID: fmt.Sprint(i), Outcome: jobs.Success}, &patchstat.Stat{})
		e.Of, e.Agent = "1", fmt.Sprint("agent-", i)
		b.Add(e)
	}
	if made := b.Report(); len(made.Agents) != 20 || len(made.Comparisons) != 190 {
		t.Errorf("%d agents, %d comparisons", len(made.Agents), len(made.Comparisons))
	}
}
