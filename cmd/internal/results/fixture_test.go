package results

import (
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

func manifest(n int) Manifest {
	m := Manifest{
		ID: "0199a000-0000-7000-8000-000000000001", Version: "v0.1.0",
		Input:   Input{Name: "issues.json", SHA256: strings.Repeat("ab", 32), Format: "gh-issues", Items: n},
		Options: map[string]string{"agent": "claude"},
	}
	for i := range n {
		m.Items = append(m.Items, Item{ID: fmt.Sprint(i + 1), Title: titles[i%len(titles)]})
	}
	return m
}

// titles as strangers write them.
var titles = []string{
	"Login button does nothing on the second click",
	"<script>alert(1)</script> breaks the page",
	"Crash | when **parsing** [an empty](http://x.example) file @everyone",
	"Typo in the README",
	"Right-to-left \u202eoverride\u202c and \x1b[31mescape codes\x1b[0m",
	"Add a --json flag to the export command, as was discussed at length in the meeting, because the table that it prints today is hard to read for other programs",
	"Sort the list of users by name",
	"日本語のファイル名で失敗する",
}

var bases = strings.Repeat("4", 40)

func result(i int) jobs.Result {
	r := jobs.Result{
		ID: fmt.Sprint(i + 1), Job: fmt.Sprintf("0199a000-0000-7000-8000-%012d", i+1), Outcome: jobs.Success, Attempts: 1,
		BaseCommit: bases, FilesChanged: 1, Isolation: jobs.IsolationWorktree, Backend: "bwrap", Model: "claude-sonnet-5",
		Durations: jobs.Durations{Queue: 0.2, Provision: 0.05, Jail: 0.04, Agent: 30 + float64(i*37%200), Collect: 0.1, Total: 31 + float64(i*37%200)},
		Usage:     jobs.Usage{Input: 12000 + int64(i)*13, Output: 900 + int64(i), CacheRead: 50000}, CostUSD: 0.05 + float64(i%9)*0.11,
		Checks: []jobs.Check{{Command: "go test ./...", Exit: 0, Seconds: 2.5}},
	}
	switch i % 10 {
	case 3:
		r.Outcome, r.Reason, r.Message, r.Checks[0].Exit = jobs.Failure, jobs.CheckFailed, "go test ./...: exit status 1\n--- FAIL: TestLogin <b>bold</b>", 1
	case 7:
		r.Outcome, r.Reason, r.Message = jobs.TimedOut, jobs.TimeLimit, "the attempt took longer than 30m0s"
	case 9:
		if i%20 == 19 {
			r.Outcome, r.Reason, r.Message = jobs.Error, jobs.ModelUnavailable, "the model API answered 529 for 10 minutes"
		}
	}
	return r
}

// patch is what result i changed: most their own file, some a shared one.
func patch(i int) string {
	switch i % 10 {
	case 7:
		return ""
	case 4:
		return strings.ReplaceAll(sharedPatch, "@@ -10,7", fmt.Sprintf("@@ -%d,7", 10+i))
	case 5:
		return workflowPatch
	}
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git a/pkg/f%d/login.go b/pkg/f%d/login.go\nindex 1111111..2222222 100644\n--- a/pkg/f%d/login.go\n+++ b/pkg/f%d/login.go\n", i, i, i, i)
	fmt.Fprintf(&b, "@@ -10,7 +10,%d @@ func login(w http.ResponseWriter) {\n \tif err != nil {\n \t\treturn\n \t}\n-\tbutton.Enabled = false\n", 7+i%5)
	for k := range 1 + i%5 {
		fmt.Fprintf(&b, "+\tbutton.Press(%d) // <script>alert(%d)</script>\n", k, k)
	}
	b.WriteString(" \tlog.Print(\"done\")\n }\n \n")
	return b.String()
}

const sharedPatch = `diff --git a/go.sum b/go.sum
index 1111111..2222222 100644
--- a/go.sum
+++ b/go.sum
@@ -10,7 +10,7 @@
 a
 b
 c
-old
+new
 d
 e
 f
`

const workflowPatch = `diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/.github/workflows/ci.yml
@@ -0,0 +1,2 @@
+on: push
+jobs: {}
diff --git "a/docs/\303\251t\303\251 <img src=x>.md" "b/docs/\303\251t\303\251 <img src=x>.md"
old mode 100644
new mode 100755
`

func events(n int) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		for i := range n {
			e := event.New(event.OutputLine{Stream: "stdout", Text: fmt.Sprintf("line %d\n\u2028", i)})
			e.Seq = uint64(i + 1)
			if !yield(e, nil) {
				return
			}
		}
	}
}

// openDir opens and closes with the test. The time is fixed so that reports
// can be compared.
func openDir(t testing.TB, dir string, m Manifest) *Dir {
	t.Helper()
	d, err := Open(dir, m)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func fill(t testing.TB, d *Dir, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := d.Add(t.Context(), result(i), strings.NewReader(patch(i)), events(3)); err != nil {
			t.Fatalf("Add %d: %v", i, err)
		}
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fixed makes what depends on the clock the same each time.
func fixed(d *Dir) {
	d.manifest.Started = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	d.opened = time.Now()
	d.wall = 754
}
