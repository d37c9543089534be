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
		if good.Agent != "good=m" || good.Succeeded != 3 || good.ChecksPassed != 3 || good.Only != 2 || good.Lines != 1 || good.High != 1 || good.Best != 3 {
			t.Errorf("the good one: %+v", good)
		}
		if bad.Agent != "bad" || bad.Succeeded != 1 || bad.Judged != 3 || bad.Checks != 3 || bad.ChecksPassed != 1 || bad.Lines != 2 || bad.Best != 0 {
			t.Errorf("the bad one: %+v", bad)
		}
		if c := r.Comparisons[0]; c.Both != 1 || c.OnlyA != 2 || c.OnlyB != 0 || c.P != 0.5 {
			t.Errorf("both: %+v", c)
		}
	}
	for name, want := range map[string]string{
		"report.md": "| 2 | success · 1/1 checks · +1 −0", "report.html": "<h2>Agents</h2>", "report.csv": ",3,good=m,1,1,,\n", "preds-bad.jsonl": `"instance_id": "1"`, "preds-good-m.json": `"2"`,
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

// Two agents try each item several times. The best of all is kept, whichever agent's it is, and of one
// agent its best; the report says which agent has how many of the best.
func TestTheBestOfSeveralAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	// The nth run of each agent counts up in a directory. That of tall changes two lines, and of the second
	// item one; its first try fails. That of wide changes three lines.
	f.must(exectest.WriteFile(filepath.Join(dir, "tall"), fmt.Appendf(nil, `#!/bin/sh
issue=$(grep -o '[0-9]' "$PENSTOCK_ISSUE_FILE" | head -n 1)
mkdir %s/tall-$issue || { echo short >answer$issue; test $issue = 2 || echo more >>answer$issue; exit 0; }
exit 1
`, dir), 0o755))
	f.must(exectest.WriteFile(filepath.Join(dir, "wide"), []byte(`#!/bin/sh
issue=$(grep -o '[0-9]' "$PENSTOCK_ISSUE_FILE" | head -n 1); test $issue = 1 && echo one >answer1 || printf 'one\ntwo\nthree\n' >answer$issue
`), 0o755))
	config := filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(config, fmt.Appendf(nil, "agents:\n  tall: {protocol: command, command: [%s/tall]}\n  wide: {protocol: command, command: [%s/wide]}\n", dir, dir), 0o644))
	f.serve("--config", config)
	f.worker("--slots", "2", "--config", config)
	out := filepath.Join(t.TempDir(), "results")
	run := []string{"batch", "run", f.issues(2, func(int) string { return "x" }), "--repo", f.repo, "--agents", "tall,wide", "--best-of", "2", "--backend", "none",
		"--max-attempts", "1", "--check", "ls answer*", "--out", out, "--config", config}
	said, code, told := f.try(append(run, "--dry-run", "-o", "id")...)
	if code != 0 || said != "1-tall-try1\n1-tall-try2\n1-wide-try1\n1-wide-try2\n2-tall-try1\n2-tall-try2\n2-wide-try1\n2-wide-try2\n" || !strings.Contains(told, "2 of 2 items selected") {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try(run...); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	for _, arg := range []string{out, results.BatchID(out)} {
		var r report.Report
		f.must(json.Unmarshal([]byte(f.run("batch", "report", arg, "-o", "json")), &r))
		if r.State != "completed" || r.Tries == nil || *r.Tries != (report.Tries{Items: 2, Runs: 8, Solved: 2, Succeeded: 6, Failed: 2}) || len(r.Agents) != 2 {
			t.Fatalf("report of %s: %s, %+v, %+v", arg, r.State, r.Tries, r.Agents)
		}
		for _, a := range r.Agents {
			if good := map[string]int{"tall": 2, "wide": 4}[a.Agent]; a.Items != 2 || a.Succeeded != 2 || a.Tries != 4 || a.GoodTries != good || a.Best != 1 {
				t.Errorf("report of %s: %+v", arg, a)
			}
		}
		for agent, want := range map[string]string{"": "1-wide 2-tall", "tall": "1-tall 2-tall", "wide": "1-wide 2-wide"} {
			to := t.TempDir()
			f.run("batch", "export", arg, "--patches", to, "--agent", agent)
			files, err := os.ReadDir(to)
			if err != nil || len(files) != 2 || !strings.HasPrefix(files[0].Name()+" "+files[1].Name(), want[:6]) || !strings.HasPrefix(files[1].Name(), want[7:]) {
				t.Errorf("export of %s, agent %q: %v, err %v", arg, agent, files, err)
			}
		}
	}
	for name, want := range map[string]string{"preds.json": `"model_name_or_path": "wide"`, "preds-tall.jsonl": "+more", "report.csv": ",1,wide,1,1,false,2\n", "report.html": "with 2 of 4 tries"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q, err %v:\n%s", name, want, err, text)
		}
	}
	if said := f.run("batch", "apply", out, "--dir", f.repo); strings.Count(said, "applied") != 2 {
		t.Errorf("applied %s", said)
	}
	submit := []string{"submit", "Issue 3", "--repo", f.repo, "--agents", "tall,wide", "--best-of", "2", "--key", "k", "-o", "id", "--config", config}
	if ids := f.run(submit...); strings.Count(ids, "\n") != 4 || f.run(submit...) != ids {
		t.Errorf("submitted are %s", ids)
	}
	f.refused(2, []string{"--agents and a command after --"}, "submit", "x", "--repo", f.repo, "--agents", "tall,wide", "--config", config, "--", "true")
	f.refused(2, []string{"agent-version", "agents"}, "run", "x", "--repo", f.repo, "--agents", "tall", "--agent-version", "1.0.0", "--config", config)
}

// Versions of one agent are compared with each other, with the one that a worker finds, and with another
// agent: reports and predictions name each with its version. The same in a run of one job, whose best is kept.
func TestVersionsOfAnAgentAreCompared(t *testing.T) {
	t.Parallel()
	f, _ := versionsFixture(t, "1.0.0", "2.0.0")
	found := t.TempDir()
	f.must(exectest.WriteFile(filepath.Join(found, "robot"), []byte("#!/bin/sh\nprintf 'found\nhere\n' >version.txt\n"), 0o755))
	f.env = append(f.env, "PATH="+found+":"+os.Getenv("PATH"))
	f.install("robot@1.0.0")
	agents := "robot@1.0.0,robot@2.0.0,robot"
	f.refused(5, []string{"robot@2.0.0", "not installed", "penstock agent install robot@2.0.0"}, "run", "x", "--repo", f.repo, "--agents", agents)
	out := filepath.Join(t.TempDir(), "results")
	batch := []string{"batch", "run", f.issues(1, func(int) string { return "x" }), "--repo", f.repo, "--agents", agents, "--check", "test -f version.txt", "--out", out}
	f.refused(5, []string{"robot@2.0.0", "not installed"}, batch...)
	f.install("robot@2.0.0")
	if said, code, told := f.try(batch...); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	for name, want := range map[string][]string{
		"report.md":               {"`robot@1.0.0`", "`robot@2.0.0`", "| robot |"},
		"report.html":             {"<td>robot@1.0.0", "<td>robot@2.0.0", "<td>robot<"},
		"report.csv":              {",1,robot@1.0.0,", ",1,robot@2.0.0,", ",1,robot,"},
		"patches/1-robot.patch":   {"+found"},
		"preds-robot-1.0.0.jsonl": {"+1.0.0", `"model_name_or_path": "robot@1.0.0"`},
		"preds-robot.jsonl":       {"+found", `"model_name_or_path": "robot"`},
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		for _, w := range want {
			if err != nil || !strings.Contains(string(text), w) {
				t.Errorf("%s has no %q, err %v:\n%s", name, w, err, text)
			}
		}
	}
	said, code, told := f.try("run", "x", "--repo", f.repo, "--agents", agents, "--check", "test -f version.txt", "-o", "json")
	if code != 0 || !strings.Contains(told, "the best of 3 tries is job-robot-1.0.0-try1 by robot@1.0.0") || !strings.Contains(told, "robot@2.0.0: 1 of 1 tries succeeded") {
		t.Errorf("exit code %d\n%s%s", code, said, told)
	}
}
