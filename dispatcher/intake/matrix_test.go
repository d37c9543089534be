package intake

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

const twoAxes = `
matrix:
  python: [3.10, 3.12]
  module: [core/io, web]
  exclude:
    - {python: 3.10, module: web}
`

// Each job is made once for each combination that is not excluded, with ids that
// say which, and stay the same when the file is read again.
func TestMatrix(t *testing.T) {
	got := read(t, twoAxes+`
defaults: {agent: {name: command, command: ["true"]}, labels: {python: "{{.matrix.python}}"}}
jobs:
  - item: port
    prompt: Port {{.matrix.module}} to {{.matrix.python}}
    agent: {command: [sh, -c, "echo {{.matrix.module}}"]}
  - item: "docs-{{.matrix.module}}-on-{{.matrix.python}}"
    prompt: Document
  - prompt: "{{.matrix.module}}"
    issue: {title: "{{.matrix.module}} and {{ broken"}
`, Options{Defaults: defaults()})
	var shown []string
	for _, item := range got.Items {
		if item.Err != nil {
			t.Errorf("%s: %v", item.ID, item.Err)
		}
		shown = append(shown, fmt.Sprintf("%s | %s | %s %q", item.ID, item.Job.Prompt, item.Job.Labels["python"], item.Job.Agent.Command))
		if item.Job.Issue != nil && item.Job.Issue.Title != "{{.matrix.module}} and {{ broken" {
			t.Errorf("%s: the issue was taken for a template: %q", item.ID, item.Job.Issue.Title)
		}
	}
	want := `port-3.10-core-io | Port core/io to 3.10 | 3.10 ["sh" "-c" "echo core/io"]
port-3.12-core-io | Port core/io to 3.12 | 3.12 ["sh" "-c" "echo core/io"]
port-3.12-web | Port web to 3.12 | 3.12 ["sh" "-c" "echo web"]
docs-core-io-on-3.10 | Document | 3.10 ["true"]
docs-core-io-on-3.12 | Document | 3.12 ["true"]
docs-web-on-3.12 | Document | 3.12 ["true"]
item-3-3.10-core-io | core/io | 3.10 ["true"]
item-3-3.12-core-io | core/io | 3.12 ["true"]
item-3-3.12-web | web | 3.12 ["true"]`
	if have := strings.Join(shown, "\n"); have != want {
		t.Errorf("got\n%s\nwant\n%s", have, want)
	}
	if first := got.InBatch("b", nil).Items[0].Job; first.Key != "b/port-3.10-core-io" {
		t.Errorf("the key is %q", first.Key)
	}
}

// A prompt template sees the combination; a job that is alone is called after it.
func TestMatrixInPromptTemplates(t *testing.T) {
	got := read(t, twoAxes+"jobs: [{agent: {name: claude}}]\n", Options{Defaults: defaults(), Template: "On {{.matrix.python}}: {{.matrix.module}}", Limit: 1})
	if item := got.Items[0]; item.ID != "3.10-core-io" || item.Job.Prompt != "On 3.10: core/io" || item.Err != nil {
		t.Errorf("got %s, %q, %v", item.ID, item.Job.Prompt, item.Err)
	}
}

func TestMatrixErrors(t *testing.T) {
	const job = "jobs: [{prompt: a}, {prompt: b}]\n"
	axes := func(n int) string {
		text := "matrix:\n"
		for i := range n {
			text += fmt.Sprintf("  a%d: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n", i)
		}
		return text + job
	}
	cases := []struct {
		name, text string
		limits     Limits
		want       string
	}{
		{"no axes", "matrix: {}\n" + job, Limits{}, "in:1: matrix: has no axes"},
		{"a list", "matrix: [a]\n" + job, Limits{}, "in:1: matrix: wants axes"},
		{"a word", "matrix:\n  a: b\n" + job, Limits{}, "in:2: matrix: a wants a list"},
		{"empty", "matrix:\n  a: []\n" + job, Limits{}, "a wants a list"},
		{"deep", "matrix:\n  a: [{b: c}]\n" + job, Limits{}, "a value is a word"},
		{"null", "matrix:\n  a: [null]\n" + job, Limits{}, "a value is a word"},
		{"axis twice", "matrix:\n  a: [1]\n  a: [2]\n" + job, Limits{}, `in:3: matrix: "a" is there twice`},
		{"value twice", "matrix:\n  a: [1, 1]\n" + job, Limits{}, `a has "1" twice`},
		{"axis name", "matrix:\n  a-b: [1]\n" + job, Limits{}, `"a-b" is no name of an axis`},
		{"include", "matrix:\n  a: [1]\n  include: []\n" + job, Limits{}, "include is not there"},
		{"exclude axis", "matrix:\n  a: [1]\n  exclude: [{b: 1}]\n" + job, Limits{}, `in:3: matrix: exclude names the axis "b"`},
		{"exclude value", "matrix:\n  a: [1]\n  exclude: [{a: 2}]\n" + job, Limits{}, `"2" is no value of a, which has 1`},
		{"exclude nothing", "matrix:\n  a: [1]\n  exclude: [{}]\n" + job, Limits{}, "as in {a: 1}"},
		{"exclude all", "matrix:\n  a: [1]\n  exclude: [{a: 1}]\n" + job, Limits{}, "exclude leaves nothing"},
		{"combinations", axes(40), Limits{}, "more than 100000 combinations"},
		{"items", axes(2), Limits{Items: 199}, "makes 200 items of 2 jobs, at most 199"},
		{"bytes", axes(4), Limits{Bytes: 4000}, "makes more than"},
		{"one file", "matrix:\n  a: [x/y, x-y]\njobs: [{prompt: a}]\n", Limits{}, `"x-y" is on line 3 and again on line 3`},
	}
	for _, c := range cases {
		_, err := Read(strings.NewReader(c.text), "in", Options{Format: "yaml", Limits: c.limits})
		if _, ok := errors.AsType[*InputError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"{{.matrix.b}}": `item 1: prompt: template:`, "{{.matrix.a": "item 1: prompt: the template does not parse", "{{.vars.x}}": "item 1: prompt:",
	} {
		got := read(t, "matrix: {a: [1]}\njobs: [{prompt: '"+text+"'}]\n", Options{Defaults: jobs.Job{Repo: jobs.Repo{URL: "/r"}}})
		if err := got.Items[0].Err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
