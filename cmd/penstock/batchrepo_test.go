package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// The repository that an item names, or implies, is the one that its job is
// about: wherever the command runs, and whether its format was named or detected.
func TestItemsKeepTheirRepositories(t *testing.T) {
	t.Parallel()
	const (
		swebench = `{"instance_id":"a__b-1","repo":"django/django","base_commit":"d26b2424437dabeeca94d7900b37d2df4410da0c","problem_statement":"p"}`
		issue    = `[{"number":12,"title":"T","body":"B","url":"https://github.com/acme/web/issues/12","labels":[]}]`
		django   = "https://github.com/django/django"
		own      = "https://example.com/own.git"
		around   = "(around)"
		refused  = "(refused)"
	)
	cases := []struct {
		name, format, text string
		args               []string
		inside, outside    string
	}{
		{"swe.jsonl", "swebench", swebench, nil, django, django},
		{"swe.json", "swebench", "[" + swebench + "]", nil, django, django},
		{"swe.yaml", "yaml", "defaults: {timeout: 1h}\njobs:\n- " + swebench, nil, django, django},
		{"swe-defaults.yaml", "yaml", "defaults: {repo: {url: " + own + "}}\njobs:\n- " + swebench, nil, own, own},
		{"swe-flag.jsonl", "swebench", swebench, []string{"--repo", own}, own, own},
		{"swe-lost.jsonl", "swebench", strings.Replace(swebench, "django/django", "", 1), nil, refused, refused},
		{"issues.json", "gh-issues", issue, nil, "https://github.com/acme/web", "https://github.com/acme/web"},
		{"issues-elsewhere.json", "gh-issues", strings.Replace(issue, "github.com/acme/web/issues", "tracker.example", 1), nil, around, refused},
		{"jobs.jsonl", "jsonl", `{"prompt":"p","repo":{"url":"` + own + `"}}`, nil, own, own},
		{"jobs.json", "json", `[{"prompt":"p","repo":{"url":"` + own + `"}}]`, nil, own, own},
		{"jobs.yaml", "yaml", "jobs:\n- prompt: p\n  repo: {url: " + own + "}", nil, own, own},
		{"defaults.yaml", "yaml", "defaults: {repo: {url: " + own + "}}\njobs:\n- prompt: p", nil, own, own},
		{"jobs.csv", "csv", "prompt,repo\np," + own, nil, own, own},
		{"bare.csv", "csv", "prompt\np", nil, around, refused},
		{"bare.jsonl", "jsonl", `{"prompt":"p"}`, nil, around, refused},
		{"none.json", "gh-issues", issue, []string{"--isolation", "none"}, "", ""},
		{"none-swe.json", "swebench", swebench, []string{"--isolation", "none"}, refused, refused},
		{"none.jsonl", "jsonl", `{"prompt":"p","isolation":"none"}`, nil, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			outside, inside := newCaller(t), newCaller(t)
			if err := os.Mkdir(filepath.Join(inside.dir, ".git"), 0o755); err != nil {
				t.Fatal(err)
			}
			for s, want := range map[*caller]string{outside: c.outside, inside: c.inside} {
				s.write(c.name, c.text)
				if want == around {
					want = s.dir
				}
				for _, format := range []string{"auto", c.format} {
					args := append([]string{"batch", "run", c.name, "--format", format, "--agent", "claude", "--dry-run", "-o", "jsonl"}, c.args...)
					got := s.call(args...)
					if want == refused {
						if got.code != 2 || !strings.Contains(got.err, "repo") {
							t.Errorf("%v: exit code %d, want 2 and repo\n%s", args, got.code, got.err)
						}
						continue
					}
					var job jobs.Job
					if err := json.Unmarshal([]byte(got.out), &job); err != nil || job.Repo.URL != want {
						t.Errorf("%v: repository %q, want %q (%v)\n%s", args, job.Repo.URL, want, err, got.err)
					}
				}
			}
		})
	}
}

// What is wrong with every item is not said a thousand times.
func TestManyInvalidItems(t *testing.T) {
	t.Parallel()
	s := newCaller(t)
	s.write("jobs.jsonl", strings.Repeat(`{"promt":"p"}`+"\n", 1000))
	got := s.wants(2, []string{"jobs.jsonl:10:", "and 990 more items"}, "batch", "run", "jobs.jsonl", "--agent", "claude")
	if strings.Contains(got.err, "jobs.jsonl:11:") {
		t.Errorf("it says too much:\n%s", got.err)
	}
}
