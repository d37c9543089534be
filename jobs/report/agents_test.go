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
		"| b\\|x | 3 of 10 | 30 % | 11–60 % | 1 | 13 of 20 |", "| a, b\\|x | 2 | 6 | 1 | 1 | 0.125 |", "| item | a | b\\|x | c |\n|---|---|---|---|\n",
		"| 0 | success · 2/2 checks · +3 −1 · 10 s · $0.50 | success · ", "| 9 | failure · 1/2 checks", " | missing |\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
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
