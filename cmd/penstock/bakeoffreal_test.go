package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/pricing"
)

// A contestant is a real agent with a model of the test's own. It fails with each item whose number
// fails divides, and changes as many lines as it says.
type contestant struct {
	agent, api, model, tool, argument string
	fails, lines                      int

	served *agenttest.Model
}

var bakeNumber = regexp.MustCompile(`BAKE-(\d+)-OFF`)

// serve starts the contestant's model, and returns the settings that lead to it.
func (c *contestant) serve(t *testing.T) []string {
	edit := func(r agenttest.Request) agenttest.Reply {
		n, err := strconv.Atoi(bakeNumber.FindStringSubmatch(r.First)[1])
		if err != nil {
			t.Error(err)
		}
		command := "true"
		for i := range c.lines {
			command += fmt.Sprintf(" && echo line %d >>answer-%d.txt", i, n)
		}
		if n%c.fails == 0 {
			command = "echo wrong >other.txt"
		}
		return agenttest.Reply{Calls: []agenttest.Call{{Name: c.tool, Input: map[string]any{c.argument: command, "description": "edit"}}}, Output: 70 + int64(n)}
	}
	c.served = agenttest.New(agenttest.Script{On: "BAKE-", Steps: []agenttest.Step{edit, func(agenttest.Request) agenttest.Reply {
		return agenttest.Reply{Text: "done", Output: 30}
	}}})
	upstream := httptest.NewServer(c.served)
	t.Cleanup(upstream.Close)
	api := strings.ToUpper(c.api)
	return []string{api + "_API_KEY=sk-real-" + c.api, "PENSTOCK_MODEL_" + api + "_URL=" + upstream.URL}
}

// solved is how many of so many items the contestant solves.
func (c *contestant) solved(items int) int { return items - items/c.fails }

// Claude Code, Codex and Gemini CLI run the same items: who solves which is in the matrix, and tokens and
// costs are what their models have counted. PENSTOCK_TEST_BAKEOFF_ITEMS says how many items there are.
func TestABakeOffOfRealPrograms(t *testing.T) {
	t.Parallel()
	items := size("PENSTOCK_TEST_BAKEOFF_ITEMS", 2)
	all := []*contestant{
		{agent: "claude", api: "anthropic", model: "claude-sonnet-4-5", tool: "Bash", argument: "command", fails: 5, lines: 2},
		{agent: "codex", api: "openai", model: "gpt-5.5", tool: "exec_command", argument: "cmd", fails: 3, lines: 1},
		{agent: "gemini", api: "google", model: "gemini-2.5-flash", tool: "run_shell_command", argument: "command", fails: 2, lines: 3},
	}
	f := newFixture(t)
	var named []string
	for _, c := range all {
		exectest.Need(t, c.agent)
		f.env = append(f.env, c.serve(t)...)
		named = append(named, c.agent+"="+c.model)
	}
	file, out := f.issues(items, func(i int) string { return fmt.Sprintf("BAKE-%d-OFF", i) }), filepath.Join(t.TempDir(), "results")
	// With many items it takes longer than a command of other tests may.
	run := f.command("batch", "run", file, "--repo", f.repo, "--agents", strings.Join(named, ","), "--check", "ls answer-*", "--max-attempts", "1", "--out", out)
	if told, err := run.CombinedOutput(); err == nil || run.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v\n%s", err, told)
	}
	for _, arg := range []string{out, results.BatchID(out)} {
		var r report.Report
		f.must(json.Unmarshal([]byte(f.run("batch", "report", arg, "-o", "json")), &r))
		if len(r.Agents) != len(all) || len(r.Matrix()) != items || len(r.Comparisons) != 3 {
			t.Fatalf("%d agents, %d rows, %d comparisons", len(r.Agents), len(r.Matrix()), len(r.Comparisons))
		}
		cost, in, made := 0.0, int64(0), int64(0)
		for i, c := range all {
			a := c.of(t, r, items)
			cost, in, made = cost+a.CostUSD, in+a.Usage.Input, made+a.Usage.Output
			for _, other := range all[i+1:] {
				compared(t, r, items, c, other)
			}
		}
		if math.Abs(r.CostUSD-cost) > 1e-6 || r.Usage.Input != in || r.Usage.Output != made {
			t.Errorf("report of %s: all cost $%v with %d and %d tokens, its agents $%v with %d and %d", arg, r.CostUSD, r.Usage.Input, r.Usage.Output, cost, in, made)
		}
	}
	data, err := os.ReadFile(filepath.Join(out, "report.csv"))
	f.must(err)
	rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
	if err != nil || len(rows) != 1+items*len(all) {
		t.Errorf("report.csv has %d rows, err %v", len(rows), err)
	}
}

// of compares what the report says of a contestant with what it did, and with what its model has counted.
func (c *contestant) of(t *testing.T, r report.Report, items int) report.Agent {
	t.Helper()
	for i, a := range r.Agents {
		if a.Agent != c.agent+"="+c.model {
			continue
		}
		in, out := c.served.Tokens()
		price, known := pricing.Of{}.Find(c.api, c.model)
		price.LongFrom = 0 // of one call, of which none is so long
		cost := price.Cost(pricing.Tokens{Input: in, Output: out})
		if a.Items != items || a.Judged != items || a.Succeeded != c.solved(items) || a.Checks != items || a.ChecksPassed != c.solved(items) {
			t.Errorf("%+v, which solves %d of %d", a, c.solved(items), items)
		}
		if a.Usage.Input != in || a.Usage.Output != out || !known || math.Abs(a.CostUSD-cost) > 1e-6 {
			t.Errorf("%+v, whose model has counted %d and %d tokens, which cost $%v", a, in, out, cost)
		}
		for _, row := range r.Matrix() {
			n, err := strconv.Atoi(row.Of)
			if run := row.Runs[i]; err != nil || run == nil || (run.Outcome == "success") == (n%c.fails == 0) || run.Outcome == "success" && run.Added != c.lines {
				t.Errorf("%s made %+v of item %s", c.agent, run, row.Of)
			}
		}
		return a
	}
	t.Fatalf("the report has no %s", c.agent)
	return report.Agent{}
}

// compared wants what two contestants have come to with the same items.
func compared(t *testing.T, r report.Report, items int, a, b *contestant) {
	t.Helper()
	var want report.Comparison
	for n := 1; n <= items; n++ {
		switch one, other := n%a.fails != 0, n%b.fails != 0; {
		case one && other:
			want.Both++
		case one:
			want.OnlyA++
		case other:
			want.OnlyB++
		default:
			want.Neither++
		}
	}
	for _, c := range r.Comparisons {
		if strings.HasPrefix(c.B, a.agent) && strings.HasPrefix(c.A, b.agent) {
			c.OnlyA, c.OnlyB = c.OnlyB, c.OnlyA
		} else if !strings.HasPrefix(c.A, a.agent) || !strings.HasPrefix(c.B, b.agent) {
			continue
		}
		if c.Both != want.Both || c.OnlyA != want.OnlyA || c.OnlyB != want.OnlyB || c.Neither != want.Neither {
			t.Errorf("%s and %s: %+v, want %+v", a.agent, b.agent, c, want)
		}
		return
	}
	t.Errorf("the report does not compare %s and %s", a.agent, b.agent)
}
