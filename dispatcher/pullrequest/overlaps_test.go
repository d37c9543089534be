package pullrequest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/overlap"
)

// patchOf changes one line of a file.
func patchOf(path string, line int) string {
	return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d,1 +%[2]d,1 @@\n-old\n+new\n", path, line)
}

// opens has a job's attempt make a patch, and waits for its pull request.
func (p *pool) opens(base, patch string) (body string) {
	p.Helper()
	rec := p.submit(nil)
	p.patch = patch
	end := p.succeed(jobs.Result{Branch: "penstock/" + rec.ID, BaseCommit: base}, "")
	number := p.becomes("a change", rec.ID, isOpen(end)).Number
	return p.github.Pulls()[number-1].Body
}

// A reviewer sees which other pull requests of the pool change the same files: also after
// another process has begun to lead, and not those of other repositories.
func TestOverlapsAreTold(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	end := p.lead()
	if body := p.opens("c1", patchOf("a.go", 10)+patchOf("b@everyone`.go", 1)); strings.Contains(body, "Overlaps") {
		t.Errorf("the first one overlaps with nothing:\n%s", body)
	}
	if body := p.opens("c1", patchOf("c.go", 10)); strings.Contains(body, "Overlaps") {
		t.Errorf("another file overlaps with nothing:\n%s", body)
	}
	lines := func(body string) (found []string) {
		_, part, _ := strings.Cut(body, "### Overlaps")
		for line := range strings.Lines(part) {
			if strings.HasPrefix(line, "- ") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	for _, c := range []struct {
		base, patch string
		want        string
	}{
		{"c1", patchOf("a.go", 10), "- #1: `a.go`; the same lines, or lines beside them, of `a.go`"},
		{"c1", patchOf("c.go", 40) + patchOf("b@everyone`.go", 1), "- #2: `c.go`; other lines, - #1: `b@everyone'.go`; the same lines, or lines beside them, of `b@everyone'.go`"},
		{"c2", patchOf("c.go", 90), "- #4: `c.go`; it was made from another commit, so lines are not compared, - #2: `c.go`; it was made from another commit, so lines are not compared"},
	} {
		end() // the next leader knows them, too
		end = p.lead()
		if got := strings.Join(lines(p.opens(c.base, c.patch)), ", "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.patch, got, c.want)
		}
	}
}

// Of many that overlap a forge gets as many as fit, and each names its first files.
func TestManyOverlapsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.lead()
	patch := ""
	for n := range 8 {
		patch += patchOf(fmt.Sprint("f", n), 1)
	}
	body := ""
	for range 13 {
		body = p.opens("c1", patch)
	}
	if strings.Count(body, "\n- #") != 10 || !strings.Contains(body, "\n- and 2 more\n") || !strings.Contains(body, "`f4`, 3 more; the same lines, or lines beside them, of `f0`, `f1`") {
		t.Errorf("got\n%s", body)
	}
	if p.github.Calls(forgetest.CreatePull) != 13 {
		t.Errorf("%d were opened, want 13", p.github.Calls(forgetest.CreatePull))
	}
}

// Two that become due together know of each other: the later one tells of the one before.
func TestOverlapsOfTwoAtOnce(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.patch = patchOf("a.go", 1)
	var ends []jobs.Record
	for n := range 2 {
		p.submit(nil)
		ends = append(ends, p.succeed(jobs.Result{Branch: fmt.Sprint("penstock/", n), BaseCommit: "c1"}, ""))
	}
	p.lead()
	for _, end := range ends {
		p.becomes("two at once", end.ID, isOpen(end))
	}
	if body := p.github.Pulls()[1].Body; !strings.Contains(body, "- #1: `a.go`; the same lines") {
		t.Errorf("the second one does not tell of the first:\n%s", body)
	}
}

// Jobs that have not ended and change the same files are told of, and not those that have.
func TestJobsThatRunAreTold(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	store := overlap.Of(p.queue.Workers())
	rec := p.submit(nil)
	end := p.succeed(jobs.Result{Branch: "penstock/one", BaseCommit: "c1"}, "")
	runs, waits := p.submit(nil), p.submit(nil)
	jobstest.Claim(p, p.queue, "w")
	ended := p.submit(nil)
	_, err := p.queue.Cancel(p.Context(), ended.ID, "test")
	p.must(err)
	for _, found := range []jobs.Overlap{
		{Job: runs.ID, Files: []string{"a.go", "b@everyone`.go"}, More: 3, Lines: []string{"a.go"}}, {Job: waits.ID, Files: []string{"a.go"}, Apart: true},
		{Job: ended.ID, Files: []string{"a.go"}}, {Job: jobs.NewID(), Files: []string{"a.go"}},
	} {
		p.must(store.Note(p.Context(), rec.ID, found))
	}
	p.lead()
	number := p.becomes("a change", rec.ID, isOpen(end)).Number
	_, body, _ := strings.Cut(p.github.Pulls()[number-1].Body, "### Overlaps\n\n")
	want := "Jobs that have not ended change the same files:\n\n- job `" + runs.ID + "`: `a.go`, `b@everyone'.go`, 3 more; the same lines, or lines beside them, of `a.go`\n" +
		"- job `" + waits.ID + "`: `a.go`; it was made from another commit, so lines are not compared\n\n"
	if !strings.HasPrefix(body, want) {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
}
