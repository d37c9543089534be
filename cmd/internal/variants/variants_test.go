package variants

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

// itemsOf are the items of a file that the variants run.
func itemsOf(t *testing.T, file string, list []Variant) ([]intake.Item, error) {
	t.Helper()
	defaults := jobs.Job{Repo: jobs.Repo{URL: "/r"}, Agent: jobs.Agent{Name: "first", MaxTurns: 7}}
	read, err := intake.Read(strings.NewReader(file), "f", intake.Options{Defaults: defaults})
	if err != nil {
		t.Fatal(err)
	}
	return Expand(read.Items, Plan{Agents: list, Agent: defaults.Agent})
}

// Each item becomes one for each agent, with the flags of all and nothing of an agent that
// the item itself names.
func TestExpand(t *testing.T) {
	list, err := Read([]string{"claude", "claude=opus/5.1"})
	if err != nil {
		t.Fatal(err)
	}
	items, err := itemsOf(t, `{"item":"a","prompt":"x","labels":{"team":"t"}}
{"item":"b","prompt":"y","agent":{"name":"gemini","model":"m","args":["--fast"]}}
{"item":"c","prompt":"z","agent":{"command":["true"]}}
{"item":"d","promt":"z"}`, list)
	var lines []string
	for _, i := range items {
		a := i.Job.Agent
		lines = append(lines, fmt.Sprint(i.ID, " ", i.Job.Item, " ", a.Name, " ", a.Model, " ", a.MaxTurns, len(a.Args), len(a.Command), " ", i.Job.Labels, " ", i.Err != nil))
	}
	const want = `a-claude a-claude claude  7 0 0 map[compare.agent:claude compare.item:a team:t] false
a-claude-opus-5.1 a-claude-opus-5.1 claude opus/5.1 7 0 0 map[compare.agent:claude=opus/5.1 compare.item:a team:t] false
b-claude b-claude claude  7 0 0 map[compare.agent:claude compare.item:b] false
b-claude-opus-5.1 b-claude-opus-5.1 claude opus/5.1 7 0 0 map[compare.agent:claude=opus/5.1 compare.item:b] false
c-claude c-claude claude  7 0 0 map[compare.agent:claude compare.item:c] false
c-claude-opus-5.1 c-claude-opus-5.1 claude opus/5.1 7 0 0 map[compare.agent:claude=opus/5.1 compare.item:c] false
d    0 0 0 map[] true`
	if got := strings.Join(lines, "\n"); err != nil || got != want {
		t.Errorf("err %v, got\n%s\nwant\n%s", err, got, want)
	}
}

// With several tries, too, each of them is one of its agent's, and an agent has the version that it
// names and no other.
func TestTriesOfAgents(t *testing.T) {
	list, err := Read([]string{"codex", "codex@0.171.0", "codex@0.171.0=gpt@5"})
	if err != nil {
		t.Fatal(err)
	}
	one := intake.Item{ID: "a", Job: jobs.Job{Prompt: "x", Repo: jobs.Repo{URL: "/r"}, Agent: jobs.Agent{Name: "codex", Version: "9.9.9"}}.WithDefaults()}
	items, err := Expand([]intake.Item{one}, Plan{Agents: list, Agent: jobs.Agent{Version: "8.8.8", MaxTurns: 7}, Tries: 2})
	var lines []string
	for _, i := range items {
		a := i.Job.Agent
		lines = append(lines, fmt.Sprintf("%s %q %q %d %v %v", i.ID, a.Version, a.Model, a.MaxTurns, i.Job.Labels, i.Err))
	}
	const want = `a-codex-try1 "" "" 7 map[compare.agent:codex compare.item:a compare.try:1] <nil>
a-codex-try2 "" "" 7 map[compare.agent:codex compare.item:a compare.try:2] <nil>
a-codex-0.171.0-try1 "0.171.0" "" 7 map[compare.agent:codex@0.171.0 compare.item:a compare.try:1] <nil>
a-codex-0.171.0-try2 "0.171.0" "" 7 map[compare.agent:codex@0.171.0 compare.item:a compare.try:2] <nil>
a-codex-0.171.0-gpt-5-try1 "0.171.0" "gpt@5" 7 map[compare.agent:codex@0.171.0=gpt@5 compare.item:a compare.try:1] <nil>
a-codex-0.171.0-gpt-5-try2 "0.171.0" "gpt@5" 7 map[compare.agent:codex@0.171.0=gpt@5 compare.item:a compare.try:2] <nil>`
	if got := strings.Join(lines, "\n"); err != nil || got != want {
		t.Errorf("err %v, got\n%s\nwant\n%s", err, got, want)
	}
}

// Agents that cannot be told apart, or cannot run, are refused.
func TestWhatIsWrong(t *testing.T) {
	for _, list := range [][]string{{""}, {"claude="}, {"=m"}, {"claude", "claude"}, {"claude=a b", "claude=a/b"}, {"claude=M", "claude=m"}, {"command"}, {"codex@"}, {"codex@latest"}, {"codex@^1.0.0"}, {"@1.0.0"}, {"codex@1.0.0", "codex@1.0.0"}, {"command@1.0.0"}} {
		if got, err := Read(list); err == nil {
			t.Errorf("%q was taken for %v", list, got)
		}
	}
	_, err := itemsOf(t, `{"item":"a","prompt":"1"}
{"item":"a-b","prompt":"2"}`, []Variant{{Name: "x"}, {Name: "b-x"}})
	if err == nil || !strings.Contains(err.Error(), "item a as b-x and item a-b as x would be one file") {
		t.Errorf("two items of one name: %v", err)
	}
	items, err := itemsOf(t, `{"item":"a","prompt":"1"}`, []Variant{{Name: "no token!"}})
	if err != nil || len(items) != 1 || items[0].Err == nil {
		t.Errorf("an agent of no name: %v, err %v", items, err)
	}
}
