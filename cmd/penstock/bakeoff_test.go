package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// Agents are compared over the items of a file: each runs each, the report says which is
// better and by how much, in the directory and from the pool, and the same command again
// does only what is missing.
func TestAgentsAreCompared(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	f.must(exectest.WriteFile(filepath.Join(dir, "good"), []byte("#!/bin/sh\necho good >answer\n"), 0o755))
	f.must(exectest.WriteFile(filepath.Join(dir, "bad"), []byte("#!/bin/sh\ngrep -q 'Issue 1' \"$PENSTOCK_ISSUE_FILE\" || exit 0\necho bad >answer\necho more >more\n"), 0o755))
	config := filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(config, fmt.Appendf(nil, "agents:\n  good: {protocol: command, command: [%s/good]}\n  bad: {protocol: command, command: [%s/bad]}\n", dir, dir), 0o644))
	f.serve("--config", config)
	f.worker("--slots", "2", "--config", config)
	file, out := f.issues(3, func(int) string { return "x" }), filepath.Join(t.TempDir(), "results")
	run := []string{"batch", "run", file, "--repo", f.repo, "--agents", "bad,good=m", "--check", "test -f answer", "--out", out, "--config", config}
	said, code, told := f.try(append(run, "--dry-run", "-o", "id")...)
	if code != 0 || said != "1-bad\n1-good-m\n2-bad\n2-good-m\n3-bad\n3-good-m\n" || !strings.Contains(told, "3 of 3 items selected") {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try(run...); code != 3 {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	of := func(args ...string) (r report.Report) {
		t.Helper()
		said, code, told := f.try(append(append([]string{"batch", "report"}, args...), "-o", "json")...)
		if err := json.Unmarshal([]byte(said), &r); code != 0 || err != nil {
			t.Fatalf("exit code %d, err %v\n%s%s", code, err, said, told)
		}
		return r
	}
	for _, r := range []report.Report{of(out), of(results.BatchID(out))} {
		if len(r.Agents) != 2 || len(r.Comparisons) != 1 || len(r.Matrix()) != 3 {
			t.Fatalf("%+v", r)
		}
		good, bad := r.Agents[0], r.Agents[1]
		if good.Agent != "good=m" || good.Succeeded != 3 || good.ChecksPassed != 3 || good.Only != 2 || good.Lines != 1 || good.High != 1 {
			t.Errorf("the good one: %+v", good)
		}
		if bad.Agent != "bad" || bad.Succeeded != 1 || bad.Judged != 3 || bad.Checks != 3 || bad.ChecksPassed != 1 || bad.Lines != 2 {
			t.Errorf("the bad one: %+v", bad)
		}
		if c := r.Comparisons[0]; c.Both != 1 || c.OnlyA != 2 || c.OnlyB != 0 || c.P != 0.5 {
			t.Errorf("both: %+v", c)
		}
	}
	for name, want := range map[string]string{
		"report.md": "| 2 | success · 1/1 checks · +1 −0", "report.html": "<h2>Agents</h2>", "report.csv": ",3,good=m,1,1,\n", "preds-bad.jsonl": `"instance_id": "1"`, "preds-good-m.json": `"2"`,
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q, err %v:\n%s", name, want, err, text)
		}
	}
	if said, code, told = f.try("batch", "apply", out, "--dir", f.repo); code != 2 || !strings.Contains(told, "--agent NAME") {
		t.Errorf("apply of no agent: exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try("batch", "apply", out, "--dir", f.repo, "--agent", "none"); code != 2 || !strings.Contains(told, "it has bad, good=m") {
		t.Errorf("apply of another agent: exit code %d\n%s%s", code, said, told)
	}
	for _, arg := range []string{out, results.BatchID(out)} {
		to := t.TempDir()
		said, code, told = f.try("batch", "export", arg, "--patches", to, "--agent", "bad", "-o", "id")
		if files, err := os.ReadDir(to); code != 0 || err != nil || len(files) != 1 || files[0].Name() != "1-bad.patch" {
			t.Errorf("export of %s: exit code %d, err %v, %v\n%s%s", arg, code, err, files, said, told)
		}
	}
	if said, code, told = f.try(append(run, "--redo", "2-bad")...); code != 3 || !strings.Contains(told, "6 of 6 done") {
		t.Errorf("again: exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try(append(run, "--agent", "good")...); code != 2 || !strings.Contains(told, "agents") {
		t.Errorf("with --agent: exit code %d\n%s%s", code, said, told)
	}
}
