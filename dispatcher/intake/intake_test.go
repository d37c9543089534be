package intake

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

var update = flag.Bool("update", false, "write the golden files")

// defaults are what the flags of a command line say.
func defaults() jobs.Job {
	return jobs.Job{
		Repo: jobs.Repo{URL: "/src/web"}, Agent: jobs.Agent{Name: "claude", Model: "m1"},
		Labels: map[string]string{"from": "flags", "team": "none"}, Env: map[string]string{"A": "b"},
		Deliver: jobs.Deliver{Draft: true}, Timeout: jobs.Duration(time.Hour),
	}
}

func read(t testing.TB, text string, opts Options) Items {
	t.Helper()
	got, err := Read(strings.NewReader(text), "in", opts)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return got
}

// TestGolden reads files as users have them, with flags and without.
func TestGolden(t *testing.T) {
	cases := []struct {
		name, file string
		opts       Options
	}{
		{"issues", "issues.json", Options{Defaults: defaults()}},
		{"issues-own-repo", "issues.json", Options{Defaults: jobs.Job{Agent: jobs.Agent{Name: "claude"}}}},
		{"issues-template", "issues.json", Options{Defaults: defaults(), Template: "{{.issue.title}} [{{.issue.number}}] in {{.repo}} for {{.vars.who}} ({{join \", \" .issue.labels}})\n{{.issue.body}}", Vars: map[string]string{"who": "ann"}}},
		{"swebench", "swebench.jsonl", Options{Defaults: jobs.Job{Agent: jobs.Agent{Name: "claude"}}}},
		{"swebench-container", "swebench.jsonl", Options{Defaults: jobs.Job{Agent: jobs.Agent{Name: "claude"}, Isolation: jobs.IsolationContainer, Repo: jobs.Repo{URL: "/testbed"}}, Limit: 2}},
		{"instances", "instances.yaml", Options{Defaults: defaults()}},
		{"jobs", "jobs.jsonl", Options{Defaults: defaults()}},
		{"yaml", "jobs.yaml", Options{Defaults: defaults()}},
		{"jira", "jira.csv", Options{Defaults: defaults(), Map: map[string]string{"labels": "Labels"}}},
		{"jira-template", "jira.csv", Options{Defaults: defaults(), Template: `{{.row.Summary}}: {{index .row "Custom field (Team)"}}`}},
		{"semicolon", "semicolon.csv", Options{Defaults: defaults(), Template: "{{.item.prompt}} ({{.row.team}})"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", c.file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			items, err := Read(f, c.file, c.opts)
			if err != nil {
				t.Fatalf("Read: %v", err)
			}
			golden(t, c.name, describe(t, items))
		})
	}
}

// describe writes items as a golden file holds them.
func describe(t testing.TB, items Items) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "format %s, %d of %d\n", items.Format, len(items.Items), items.Total)
	for _, item := range items.Items {
		if item.Err != nil {
			fmt.Fprintf(&b, "\n%s line %d\n  error: %v\n", item.ID, item.Line, item.Err)
			continue
		}
		raw, err := json.MarshalIndent(item.Job, "  ", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s line %d\n  %s\n", item.ID, item.Line, raw)
	}
	return b.String()
}

func golden(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update and read the diff); got:\n%s", path, got)
	}
}

// TestSolutionsStayOut looks for a benchmark's answers everywhere in what a
// batch hands on, with a template that asks for everything.
func TestSolutionsStayOut(t *testing.T) {
	for _, file := range []string{"swebench.jsonl", "instances.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "SOLUTION") {
			t.Fatalf("%s has nothing to hide", file)
		}
		opts := Options{Defaults: defaults(), Template: "{{json .item}} {{json .issue}} {{json .row}}"}
		items, err := Read(strings.NewReader(string(data)), file, opts)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(items.Items)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "SOLUTION") {
			t.Errorf("%s: the solution is passed on: %s", file, raw)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	const one = `{"prompt":"p","issue":{"number":1,"title":"T","body":"{{.vars.key}}"}}`
	opts := Options{Defaults: defaults(), Template: "Title: {{.issue.title}}\nBy: {{.issue.author}}\n"}
	items := read(t, one, opts)
	if err := items.Items[0].Err; err == nil || !strings.Contains(err.Error(), ":2:") || !strings.Contains(err.Error(), `"author"`) || !strings.Contains(err.Error(), ".issue.title") {
		t.Errorf("missing field: %v, want line 2, the field, and what there is", err)
	}
	opts.Template = "{{.issue.body}}"
	opts.Vars = map[string]string{"key": "evaluated"}
	if got, want := read(t, one, opts).Items[0].Job.Prompt, "{{.vars.key}}"; got != want {
		t.Errorf("prompt %q, want the issue's text as it is: %q", got, want)
	}
	opts.Template = "{{.issue.title"
	if _, err := Read(strings.NewReader(one), "in", opts); err == nil || !strings.Contains(err.Error(), "template") {
		t.Errorf("broken template: %v", err)
	}
	opts.Template = "{{range $i, $e := .item.many}}{{$.issue.body}}{{end}}"
	long := fmt.Sprintf(`{"prompt":"p","issue":{"number":1,"body":%q},"labels":{}}`, strings.Repeat("x", 500_000))
	opts.Template = "{{.issue.body}}{{.issue.body}}{{.issue.body}}"
	if err := read(t, long, opts).Items[0].Err; err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("huge prompt: %v, want a refusal", err)
	}
}

func TestWholeBatchErrors(t *testing.T) {
	twice := `{"item":"a","prompt":"p"}` + "\n\n" + `{"item":"b","prompt":"p"}` + "\n" + `{"item":"a","prompt":"q"}`
	cases := []struct {
		name, text string
		opts       Options
		want       []string
	}{
		{"empty", " \n", Options{}, []string{"is empty"}},
		{"utf16", "\xff\xfea\x00", Options{}, []string{"UTF-16"}},
		{"binary", "a\nb\x80", Options{}, []string{"in:2", "UTF-8"}},
		{"prose", "Dear all,\nsee below\n", Options{}, []string{"JSON Lines", "CSV", "--format"}},
		{"twice", twice, Options{}, []string{`"a"`, "line 1", "line 4"}},
		{"one file", `{"item":"x y"}` + "\n" + `{"item":"X-Y"}`, Options{}, []string{"would be one file", "line 2"}},
		{"broken list", "[\n{},\n{]", Options{}, []string{"in:3", "JSON"}},
		{"empty list", "[]", Options{}, []string{"no items"}},
		{"format", "{}", Options{Format: "toml"}, []string{`"toml"`, "swebench"}},
		{"map without csv", "{}", Options{Map: map[string]string{"id": "x"}}, []string{"CSV"}},
		{"map field", "a,b\n1,2\n", Options{Map: map[string]string{"prmpt": "a"}}, []string{`"prmpt"`, "prompt"}},
		{"map column", "a,b\n1,2\n", Options{Map: map[string]string{"prompt": "c"}}, []string{"a, b"}},
		{"no prompt", "a,b\n1,2\n", Options{Format: "csv"}, []string{"--map"}},
		{"yaml field", "jobs: []\nmatrx: {}\n", Options{}, []string{"in:2", "matrx"}},
		{"yaml twice", "jobs: []\njobs: []\n", Options{}, []string{"twice"}},
		{"yaml defaults", "defaults: {agnet: 1}\njobs: [{}]\n", Options{}, []string{"in:1", "agnet"}},
		{"yaml documents", "jobs: [{}]\n---\njobs: [{}]\n", Options{}, []string{"more than one"}},
		{"filter", "{}", Options{Filter: "("}, []string{"filter"}},
		{"slice", "{}", Options{Slice: "1:2:0"}, []string{"step"}},
		{"limit", "{}", Options{Limit: -1}, []string{"limit"}},
		{"too many", strings.Repeat("{}\n", 100_001), Options{}, []string{"in:100001:", "more than 100000", "--max-items"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.text), "in", c.opts)
			if _, ok := errors.AsType[*InputError](err); !ok {
				t.Fatalf("got %v (%T), want an *InputError", err, err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestMerge(t *testing.T) {
	items := read(t, `{"item":"a","prompt":"p","agent":{"model":"m2"},"labels":{"team":"web"},"deliver":{"draft":false},"env":{"B":"c"}}
{"item":"b","agent":{"name":"command","command":["true"]}}
{"item":"c","prompt":"p","key":"mine"}`, Options{Defaults: defaults()})
	a := items.Items[0].Job
	if a.Agent.Name != "claude" || a.Agent.Model != "m2" || a.Deliver.Draft || a.Timeout != jobs.Duration(time.Hour) {
		t.Errorf("item a: %+v, want its own model and draft, the flags' name and timeout", a)
	}
	if fmt.Sprint(a.Labels) != "map[from:flags team:web]" || fmt.Sprint(a.Env) != "map[A:b B:c]" {
		t.Errorf("labels %v, env %v: want both merged", a.Labels, a.Env)
	}
	if b := items.Items[1].Job; b.Agent.Model != "" || b.Agent.Name != "command" {
		t.Errorf("another agent inherited %+v", b.Agent)
	}
	if err := items.Items[2].Err; err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("an own key: %v, want a refusal", err)
	}
	bad := items.Errors()
	if len(bad) != 1 {
		t.Fatalf("%d errors, want 1", len(bad))
	}
	if r := bad[0].Rejected(); r.ID != "c" || r.Reason != jobs.InvalidJob || r.Outcome != jobs.Error || !strings.Contains(r.Message, "in:3") {
		t.Errorf("rejected as %+v", r)
	}
}

func TestInBatch(t *testing.T) {
	items := read(t, `{"item":"a","prompt":"p"}`, Options{Defaults: defaults()})
	in := items.InBatch("b1", nil)
	if got := in.Items[0].Job; got.Key != "b1/a" || got.Batch != "b1" || got.Item != "a" {
		t.Errorf("got key %q batch %q item %q", got.Key, got.Batch, got.Item)
	}
	if items.Items[0].Job.Key != "" {
		t.Error("InBatch changed the items it was called on")
	}
	if err := in.Items[0].Job.Validate(); err != nil {
		t.Errorf("the job is no longer valid: %v", err)
	}
	in = items.InBatch("b1", func(item string) string { return "b1/" + item + "/2" })
	if got := in.Items[0].Job.Key; got != "b1/a/2" {
		t.Errorf("key %q", got)
	}
}

func ids(items Items) []string {
	var got []string
	for _, item := range items.Items {
		got = append(got, item.ID)
	}
	return got
}

func TestSelection(t *testing.T) {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, "{\"item\":\"n%d\",\"prompt\":\"p\"}\n", i)
	}
	cases := []struct {
		opts Options
		want string
	}{
		{Options{Slice: "2:4"}, "n2 n3"},
		{Options{Slice: "3"}, "n0 n1 n2"},
		{Options{Slice: "-2:"}, "n8 n9"},
		{Options{Slice: "::-4"}, "n9 n5 n1"},
		{Options{Slice: "8:2:-3"}, "n8 n5"},
		{Options{Slice: "-100:100:4"}, "n0 n4 n8"},
		{Options{Slice: "100:"}, ""},
		{Options{Slice: "0::9223372036854775807"}, "n0"},
		{Options{Filter: "n[1-5]", Slice: "::2", Limit: 2}, "n1 n3"},
		{Options{Filter: "[1-5]"}, ""}, // from the beginning of the id
	}
	for _, c := range cases {
		c.opts.Defaults = defaults()
		if got := strings.Join(ids(read(t, b.String(), c.opts)), " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.opts, got, c.want)
		}
	}
	lines := strings.SplitAfter(strings.TrimSpace(b.String()), "\n")
	slices.Reverse(lines)
	one := ids(read(t, b.String(), Options{Defaults: defaults(), Shuffle: true}))
	two := ids(read(t, strings.Join(lines, "\n"), Options{Defaults: defaults(), Shuffle: true, Seed: 42}))
	if !slices.Equal(one, two) || slices.IsSorted(one) {
		t.Errorf("shuffle: %v and %v, want the same order whatever the file's, and not sorted", one, two)
	}
	if three := ids(read(t, b.String(), Options{Defaults: defaults(), Shuffle: true, Seed: 7})); slices.Equal(one, three) {
		t.Error("another seed gives the same order")
	}
	first := ids(read(t, b.String(), Options{Defaults: defaults(), Shuffle: true, Limit: 3}))
	if !slices.Equal(first, one[:3]) {
		t.Errorf("limit before shuffle: %v, want %v", first, one[:3])
	}
}

func TestFileSafe(t *testing.T) {
	for _, id := range []string{"../../etc/passwd", "..", ".", "-rf", ".hidden", "a/b", "", "\x00", "日本", strings.Repeat("x", 500), "a\nb", "__init__", "…" + strings.Repeat("/", 300)} {
		job := defaults()
		job.Prompt, job.Item = "p", FileSafe(id)
		if err := job.WithDefaults().Validate(); err != nil || job.Item == "" {
			t.Errorf("FileSafe(%q) = %q: %v", id, job.Item, err)
		}
	}
	if FileSafe("日本") == FileSafe("中国") {
		t.Error("two ids without a usable character became one")
	}
}
