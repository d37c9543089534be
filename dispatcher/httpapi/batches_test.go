package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/internal/batch"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
)

// lines is a batch of jobs with these items.
func lines(t *testing.T, items ...string) string {
	t.Helper()
	var b strings.Builder
	for _, item := range items {
		b.WriteString(plain(t, func(job *jobs.Job) { job.Item, job.Key, job.Batch = item, "", "" }) + "\n")
	}
	return b.String()
}

func (p *pool) submitBatch(query, body string) answer {
	p.t.Helper()
	return p.ask(jobs.RoleSubmitter, "POST /v1/batches?"+query, body, "Content-Type", "application/jsonl")
}

// A batch is submitted once, however often its lines are sent, and also the rest of one
// that was interrupted.
func TestSubmitABatch(t *testing.T) {
	t.Parallel()
	p := open(t)
	check := want[batch.Submitted](t, p.submitBatch("name=b&dry_run=true", lines(t, "one", "two")), http.StatusOK)
	if check.Jobs != 2 || check.Submitted != 0 {
		t.Errorf("only checked: %+v", check)
	}
	if got := p.ask(jobs.RoleViewer, "GET /v1/batches/b/results", ""); got.status != http.StatusNotFound {
		t.Errorf("a batch without jobs: %d %s", got.status, got.body)
	}
	first := want[batch.Submitted](t, p.submitBatch("name=b", lines(t, "one", "two")), http.StatusCreated)
	again := want[batch.Submitted](t, p.submitBatch("name=b", lines(t, "one", "two", "three")), http.StatusCreated)
	if first.Submitted != 2 || again.Jobs != 3 || again.Submitted != 1 || again.Differ != nil {
		t.Errorf("submitted %+v, then %+v", first, again)
	}
	other := strings.Replace(lines(t, "one"), `"prompt":"`, `"prompt":"Not `, 1)
	if got := want[batch.Submitted](t, p.submitBatch("name=b", other), http.StatusCreated); fmt.Sprint(got.Differ) != "[one]" {
		t.Errorf("another job of an item that is there: %+v", got)
	}
	list := want[operation.Listed](t, p.ask(jobs.RoleViewer, "GET /v1/batches/b/jobs", ""), http.StatusOK)
	if len(list.Jobs) != 3 || list.Jobs[0].Source != "http" {
		t.Errorf("the batch has %+v", list.Jobs)
	}
}

// If one line is not a job, the pool gets none, and the answer names each such line.
func TestABatchWithWrongLines(t *testing.T) {
	t.Parallel()
	p := open(t)
	good := lines(t, "one")
	for name, tt := range map[string]struct {
		query, body string
		status      int
		says        string
	}{
		"no name":         {"", good, 400, "name"},
		"a name of more":  {"name=a/b", good, 400, "a/b"},
		"no line":         {"name=b", "", 400, "is empty"},
		"no JSON":         {"name=b", good + "{\n", 400, `"field":"line 2"`},
		"unknown field":   {"name=b", good + `{"promt":"x"}` + "\n", 400, "promt"},
		"no job":          {"name=b", good + "[]\n", 400, `"field":"line 2"`},
		"not valid":       {"name=b", good + `{"prompt":"x","isolation":"none","timeout":"never"}` + "\n", 400, "timeout"},
		"a key":           {"name=b", `{"prompt":"x","isolation":"none","key":"k"}` + "\n", 400, "leave them out"},
		"one item twice":  {"name=b", good + good, 400, "one"},
		"no UTF-8":        {"name=b", good + "{\"prompt\":\"\xff\"}\n", 400, "UTF-8"},
		"NUL":             {"name=b", good + "{\"prompt\":\"\x00\"}\n", 400, `"field":"`},
		"unknown default": {"name=b&priority=high", good, 400, "priority"},
		"too long":        {"name=b", strings.Repeat(`{"prompt":"`+strings.Repeat("x", 1<<19)+`","isolation":"none"}`+"\n", 33), 413, "in parts"},
		"a long line":     {"name=b", `{"prompt":"` + strings.Repeat("x", 2<<20) + `"}`, 400, `"field":"line 1"`},
	} {
		got := p.submitBatch(tt.query, tt.body)
		if got.status != tt.status || !strings.Contains(got.body, tt.says) {
			t.Errorf("%s: %d %.400s", name, got.status, got.body)
		}
	}
	many := p.submitBatch("name=b", strings.Repeat("{}\n", 50))
	if fields := many.problem(t).Fields; len(fields) != 21 || !strings.Contains(fields[20].Reason, "30 more") {
		t.Errorf("50 wrong lines: %d %+v", len(fields), fields)
	}
	if got := p.ask(jobs.RoleSubmitter, "POST /v1/batches?name=b", good); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("as application/json: %d %s", got.status, got.body)
	}
	if list := want[operation.Listed](t, p.ask(jobs.RoleViewer, "GET /v1/jobs", ""), http.StatusOK); len(list.Jobs) != 0 {
		t.Errorf("%d jobs of batches that were refused", len(list.Jobs))
	}
}

// Results and predictions have a line for each job that has finished.
func TestResultsOfABatch(t *testing.T) {
	t.Parallel()
	p := open(t)
	want[batch.Submitted](t, p.submitBatch("name=b", lines(t, "one", "two", "three")), http.StatusCreated)
	for range 2 {
		p.finish(p.write(jobstest.Claim(t, p.queue, "w")))
	}
	want[operation.CancelledBatch](t, p.ask(jobs.RoleOperator, "POST /v1/batches/b/cancel", "{}"), http.StatusOK)
	results := p.ask(jobs.RoleViewer, "GET /v1/batches/b/results", "")
	if got := strings.Count(results.body, `"outcome":"success"`); results.status != http.StatusOK || got != 2 {
		t.Fatalf("%d lines: %d %s", got, results.status, results.body)
	}
	for line := range strings.Lines(results.body) {
		var result jobs.Result
		if err := json.Unmarshal([]byte(line), &result); err != nil || result.ID == "" || result.Outcome == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	preds := p.ask(jobs.RoleViewer, "GET /v1/batches/b/preds", "")
	for line := range strings.Lines(preds.body) {
		var one map[string]string
		if err := json.Unmarshal([]byte(line), &one); err != nil || one["instance_id"] == "" || one["model_name_or_path"] == "" {
			t.Errorf("%s: %v", line, err)
		}
		if _, ok := one["model_patch"]; !ok {
			t.Errorf("%s has no patch", line)
		}
	}
	for name, got := range map[string]answer{"results": results, "predictions": preds} {
		if n := strings.Count(got.body, "\n"); got.status != http.StatusOK || n != 3 { // with the one that never ran
			t.Errorf("%d %s: %d %s", n, name, got.status, got.body)
		}
	}
	for _, path := range []string{"/v1/batches/b/results?format=csv", "/v1/batches/..%2Fb/preds", "/v1/batches/B/results"} {
		if got := p.ask(jobs.RoleViewer, "GET "+path, ""); got.status != 400 && got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// patch changes line n of a file.
func patch(path string, n int) string {
	return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nindex 1..2 100644\n--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d +%[2]d @@\n-old\n+new\n", path, n)
}

// The report of a batch says what its jobs came to and where their patches meet, in JSON and
// in Markdown; it is there while jobs run.
func TestReportOfABatch(t *testing.T) {
	t.Parallel()
	p := open(t)
	want[batch.Submitted](t, p.submitBatch("name=b", lines(t, "one", "two", "three", "four")), http.StatusCreated)
	ctx := jobstest.Context(t)
	// Which of them is claimed first is not said. The fourth one does not end.
	patches := map[string]string{"one": patch("go.sum", 7), "two": patch("go.sum", 7) + patch("<b>.md", 1), "three": ""}
	for range 4 {
		claim := jobstest.Claim(t, p.queue, "w")
		patch, ends := patches[claim.Record().Item]
		if !ends {
			continue
		}
		end := jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed}
		if patch != "" {
			end = jobs.Ended{Outcome: jobs.Success}
			if _, err := p.store.Put(ctx, claim.Record().ID, claim.Epoch(), jobs.PatchName, strings.NewReader(patch)); err != nil {
				t.Fatal(err)
			}
		}
		claim.Spend(jobs.Spent{CostUSD: 0.5, Usage: jobs.Usage{Input: 1000}})
		if _, err := claim.Settle(ctx, end, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := want[report.Report](t, p.ask(jobs.RoleViewer, "GET /v1/batches/b/report", ""), http.StatusOK)
	if got.State != "running" || got.Items != 4 || got.Done != 3 || got.Missing != 1 || got.Outcomes[jobs.Success] != 2 || got.CostUSD != 1.5 || got.Usage.Input != 3000 {
		t.Errorf("the report says %+v", got)
	}
	if len(got.Reasons) != 1 || got.Reasons[0].Reason != jobs.CheckFailed || fmt.Sprint(got.Reasons[0].IDs) != "[three]" || len(got.Slowest) != 3 {
		t.Errorf("reasons %+v, slowest %+v", got.Reasons, got.Slowest)
	}
	if len(got.Pairs) != 1 {
		t.Fatalf("the patches meet in %+v", got.Pairs)
	}
	first, second := got.Pairs[0].A, got.Pairs[0].B // in the order of their jobs
	if min(first, second) != "one" || max(first, second) != "two" || fmt.Sprint(got.Pairs[0].Conflicts) != "[go.sum]" || got.Added != 3 || got.Unchanged != 1 {
		t.Errorf("the patches meet in %+v; %d lines, %d unchanged", got.Pairs, got.Added, got.Unchanged)
	}
	for _, md := range []answer{
		p.ask(jobs.RoleViewer, "GET /v1/batches/b/report?format=md", ""), p.ask(jobs.RoleViewer, "GET /v1/batches/b/report", "", "Accept", "text/markdown"),
	} {
		if !strings.HasPrefix(md.body, "# Batch b\n") || !strings.Contains(md.body, "| "+first+", "+second+" | go.sum | go.sum |") || md.header.Get("Content-Type") != "text/markdown; charset=utf-8" {
			t.Errorf("in Markdown: %d %s", md.status, md.body)
		}
	}
	for path, status := range map[string]int{"/v1/batches/b/report?format=pdf": 400, "/v1/batches/b/report?limit=3": 400, "/v1/batches/nothing/report": 404} {
		if got := p.ask(jobs.RoleViewer, "GET "+path, ""); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
