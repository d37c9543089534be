package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
)

// mergesTried is the documented JSON of penstock batch overlaps.
type mergesTried struct {
	Batch   string
	Merge   int
	Stop    int
	Untried int
	Fewest  bool
	Order   []struct {
		Item, Job, State string
		With, Conflicts  []string
	}
	Pairs []struct {
		A, B, State      string
		Files, Conflicts []string
	}
}

// Results of a batch are merged in pairs, and applied in the order in which the fewest stop. The user's
// repository stays as it is.
func TestWhichResultsOfABatchMerge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lines := filepath.Join(f.repo, "lines")
	f.must(os.WriteFile(lines, []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"), 0o600))
	f.git("-C", f.repo, "add", "lines")
	f.git("-C", f.repo, "commit", "-q", "-m", "lines")
	f.serve()
	f.worker("--slots", "2")
	// The first conflicts with the second and the third, which merge with each other; the fourth is apart.
	var items strings.Builder
	for _, c := range [][2]string{
		{"first", "sed -i 's/^2$/two/; s/^11$/eleven/' lines"}, {"second", "sed -i 's/^2$/TWO/' lines"},
		{"third", "sed -i 's/^11$/ELEVEN/' lines"}, {"fourth", "echo apart >apart"},
	} {
		item, err := json.Marshal(map[string]any{"item": c[0], "prompt": c[0], "agent": map[string]any{"name": "command", "command": []string{"sh", "-c", c[1]}}})
		f.must(err)
		items.Write(append(item, '\n'))
	}
	file, out := filepath.Join(t.TempDir(), "items.jsonl"), filepath.Join(t.TempDir(), "results")
	f.must(os.WriteFile(file, []byte(items.String()), 0o600))
	f.run("batch", "run", file, "--repo", f.repo, "--out", out)
	night := results.BatchID(out)
	ids := map[string]string{}
	var list []jobs.Result
	f.must(json.Unmarshal([]byte(f.run("batch", "results", out, "-o", "json")), &list))
	for _, r := range list {
		ids[r.ID] = r.Job
	}
	status := func() string {
		return f.git("-C", f.repo, "status", "--porcelain", "--ignored") + f.git("-C", f.repo, "count-objects", "-v") + f.git("-C", f.repo, "for-each-ref")
	}
	before := status()
	var found mergesTried
	tried := func(args ...string) {
		f.Helper()
		said, code, told := f.try(append([]string{"batch", "overlaps", "--dir", f.repo}, args...)...)
		if found = (mergesTried{}); code != 0 || json.Unmarshal([]byte(said), &found) != nil {
			t.Fatalf("exit code %d\n%s%s", code, said, told)
		}
	}
	tried(out, "-o", "json")
	ofDir := found
	tried(night, "-o", "json")
	if ofDir.Merge != 3 || ofDir.Stop != 1 || len(ofDir.Pairs) != 3 {
		t.Errorf("of the directory: %+v", ofDir)
	}
	if found.Batch != night || found.Merge != 3 || found.Stop != 1 || found.Untried != 0 || !found.Fewest || len(found.Order) != 4 || len(found.Pairs) != 3 {
		t.Fatalf("%+v", found)
	}
	last := found.Order[3]
	slices.Sort(last.With)
	if last.Job != ids["first"] || last.State != "conflict" || strings.Join(last.With, " ") != "second third" || strings.Join(last.Conflicts, " ") != "lines" {
		t.Errorf("%+v", found.Order)
	}
	for _, p := range found.Pairs {
		if want := map[bool]string{true: "conflict", false: "merges"}[p.A == "first" || p.B == "first"]; p.State != want || strings.Join(p.Files, " ") != "lines" {
			t.Errorf("%+v, want %s", p, want)
		}
	}
	tried("--job", ids["second"]+","+ids["third"], "-o", "json")
	if found.Merge != 2 || found.Stop != 0 || found.Order[0].Item != ids["second"] {
		t.Errorf("of two jobs: %+v", found)
	}
	if said, _, told := f.try("batch", "overlaps", night, "--dir", f.repo); !strings.Contains(said, "conflict") || !strings.Contains(told, "3 of 4 results merge one after the other, 1 conflict with those before them; no order has fewer conflicts") {
		t.Errorf("%s%s", said, told)
	}
	if after := status(); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
	for _, args := range [][]string{{}, {night, "--job", ids["first"]}, {night, "--max-time", "0s"}} {
		if said, code, told := f.try(append([]string{"batch", "overlaps", "--dir", f.repo}, args...)...); code != 2 {
			t.Errorf("%v: exit code %d\n%s%s", args, code, said, told)
		}
	}
	if _, code, _ := f.try("batch", "overlaps", "none", "--dir", f.repo); code != 5 {
		t.Errorf("a batch that does not exist: exit code %d", code)
	}
	// In the order of the batch the first is merged, and the second stops it.
	said, code, told := f.try("batch", "apply", night, "--dir", f.repo, "--order", "least-conflicts")
	if code != 9 || strings.Count(said, "applied") != 3 || !strings.Contains(said, "conflict") {
		t.Errorf("exit code %d\n%s%s", code, said, told)
	}
	if text, err := os.ReadFile(lines); err != nil || !strings.Contains(string(text), "TWO") || !strings.Contains(string(text), "ELEVEN") {
		t.Errorf("%v\n%s", err, text)
	}
}
