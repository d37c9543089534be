package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
)

// everyCommand calls fn for each command of the program.
func everyCommand(fn func(cmd *cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		fn(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&app{cfg: cli.Defaults(), format: cli.Table}).root(nil))
}

// Each group refuses a subcommand that it does not have, on standard error, and
// says which one was probably meant.
func TestGroupsRefuseUnknownCommands(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	groups := 0
	everyCommand(func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			return
		}
		groups++
		path := strings.Fields(cmd.CommandPath())[1:]
		sub := cmd.Commands()[0].Name()
		for _, other := range cmd.Commands() {
			if len(other.Name()) > len(sub) {
				sub = other.Name()
			}
		}
		typo := sub + "x"
		got := c.wants(2, []string{fmt.Sprintf("unknown command %q", typo), "hint: did you mean \"" + cmd.CommandPath() + " " + sub + `"`}, append(path, typo)...)
		if got.out != "" {
			t.Errorf("%s %s writes to standard output:\n%s", cmd.CommandPath(), typo, got.out)
		}
		if !strings.Contains(cmd.Use, " ") { // else the word could be an argument
			c.wants(2, []string{`unknown command "zzzzzzzz"`, "hint: run "}, append(slices.Clone(path), "zzzzzzzz")...)
		}
	})
	if groups < 12 {
		t.Errorf("only %d groups were found", groups)
	}
	c.wants(2, []string{`unknown command "puase" of penstock queue`}, "help", "queue", "puase")
	c.wants(2, []string{`unknown command "frobnicate"`}, "help", "frobnicate")
	c.wants(0, []string{"penstock queue pause QUEUE"}, "help", "queue", "pause")
}

// Each command that wants arguments says which one is missing, or too many, as an
// error of usage.
func TestArgumentsThatAreMissing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	tried := 0
	everyCommand(func(cmd *cobra.Command) {
		operands := strings.Fields(cmd.Use)[1:]
		if !cmd.Runnable() || cmd.Args == nil || cmd.HasSubCommands() && len(operands) == 0 {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		if len(operands) > 0 && !strings.HasPrefix(operands[0], "[") {
			tried++
			c.wants(2, []string{operands[0] + " is missing", "hint: usage: " + cmd.CommandPath()}, path...)
		}
		if !strings.Contains(cmd.Use, "…") && !strings.Contains(cmd.Use, "[COMMAND|TOPIC]") && cmd.Args(cmd, []string{"a", "b", "c", "d"}) != nil {
			tried++
			c.wants(2, []string{"unexpected argument"}, append(path, "a", "b", "c", "d")...)
		}
	})
	if tried < 50 {
		t.Errorf("only %d commands were tried", tried)
	}
}

// A flag that takes only certain words refuses others, and says which it takes.
func TestFlagsOfCertainWords(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	// Each of them, with a nonsensical word and with one that is nearly right.
	known := map[string][2]string{
		"output": {"", ""}, "progress": {"", ""}, // types of their own
		"log-level": {"inof", "info"}, "log-format": {"jsn", "json"}, "isolation": {"worktre", "worktree"}, "backend": {"bwarp", "bwrap"},
		"preset": {"stirct", "strict"}, "on-budget": {"prak", "park"}, "network": {"allow", "allowlist"}, "priority": {"hihg", "high"}, "deliver": {"brnach", "branch"},
		"format": {"swe-bench", "swebench"}, "state": {"running", ""}, "reason": {"model_biling", "model_billing"}, "kind": {"", ""},
		"missed": {"onec", "once"}, "overlap": {"alow", "allow"}, "workspace": {"overly", "overlay"}, "outcome": {"succss", "success"}, "sort": {"submited", "submitted"},
		"role": {"viewr", "viewer"}, "order": {"least-conflict", "least-conflicts"}, "by": {"queu", "queue"}, "review": {"rejectd", "rejected"},
	}
	seen, tried := map[string]bool{}, map[string]bool{}
	list := regexp.MustCompile(`^[^/]*\b[a-z-]+, (?:[a-z-]+, )*[a-z-]+ or [a-z-]+\b`)
	everyCommand(func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			choice, ok := f.Value.(*input.Choice)
			if !ok {
				if f.Value.Type() == "string" && f.Name != "ref" && list.MatchString(f.Usage) {
					t.Errorf("%s --%s takes only certain words (%s): use input.OneOf", cmd.CommandPath(), f.Name, f.Usage)
				}
				return
			}
			seen[f.Name] = true
			if tried[f.Name+strings.Join(choice.Words, " ")] {
				return
			}
			tried[f.Name+strings.Join(choice.Words, " ")] = true
			path := strings.Fields(cmd.CommandPath())[1:]
			c.wants(2, append([]string{`"--` + f.Name + `" flag: "nothing-like-it" is not allowed`}, choice.Words...), append(path, "--"+f.Name, "nothing-like-it")...)
			near, ok := known[f.Name]
			if !ok {
				t.Errorf("--%s is not in the table", f.Name)
			}
			if near[1] != "" {
				c.wants(2, []string{"did you mean " + near[1] + "?"}, append(slices.Clone(path), "--"+f.Name, near[0])...)
			}
		})
	})
	for name := range known {
		if !seen[name] && name != "output" && name != "progress" {
			t.Errorf("--%s takes any word", name)
		}
	}
	c.wants(2, []string{"use table, json, jsonl, yaml or id"}, "job", "ls", "-o", "xml")
	c.wants(2, []string{"use auto, tty, plain or quiet"}, "job", "ls", "--progress", "loud")
}

// Values that no command can do anything with are refused before anything is done.
func TestValuesThatAreWrong(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.write("jobs.jsonl", `{"item":"one","prompt":"p","isolation":"none","agent":{"name":"cluade"}}`)
	c.write("job.json", `{"prompt":"p","isolation":"none","agent":{"name":"codx"}}`)
	c.write("good.jsonl", `{"item":"one","prompt":"p","isolation":"none"}`)
	for _, args := range [][]string{
		{"submit", "p", "--isolation", "none", "--agent", "cluade"}, {"run", "p", "--isolation", "none", "--agent", "cluade"},
		{"schedule", "add", "n", "p", "--every", "1h", "--isolation", "none", "--agent", "cluade"},
		{"batch", "run", "jobs.jsonl"}, {"batch", "run", "good.jsonl", "--agent", "cluade"},
	} {
		c.wants(2, []string{`there is no agent "cluade"; did you mean claude? Known are `}, args...)
	}
	c.wants(2, []string{"did you mean codex?"}, "submit", "--job", "job.json")
	c.wants(2, []string{"none of its 1 items is selected", "--filter"}, "batch", "run", "good.jsonl", "--agent", "claude", "--filter", "two")
	c.wants(2, []string{"none of its 1 items is selected"}, "batch", "run", "good.jsonl", "--agent", "claude", "--slice", "5:", "--dry-run")
	for _, flag := range []string{"--max-turns=-1", "--timeout=-5s", "--max-cost=-0.5", "--max-attempts=-2", "--cpus=-1"} {
		name, _, _ := strings.Cut(flag, "=")
		c.wants(2, []string{name, "is less than 0"}, "submit", "p", "--isolation", "none", "--agent", "claude", flag)
	}
	c.wants(2, []string{"if any flags in the group", "show"}, "job", "salvage", "0198c0de", "--show", "--restore", "x")
	// Looking for jobs makes no pool where none was.
	for _, args := range [][]string{
		{"job", "ls"}, {"job", "get", "0198c0de"}, {"queue", "ls"}, {"queue", "pause", "default"}, {"batch", "ls"}, {"dead", "ls"}, {"why", "0198c0de"},
		{"wait", "0198c0de"}, {"watch", "0198c0de"}, {"logs", "0198c0de"}, {"schedule", "ls"}, {"send", "0198c0de", "x"},
	} {
		c.wants(5, []string{"no pool has used it", c.data}, args...)
	}
	if found, _ := filepath.Glob(filepath.Join(c.data, "*")); len(found) > 0 {
		t.Errorf("a command that reads has made %v", found)
	}
	// What the pool has nothing of is not taken for an empty list of it.
	c.wants(0, nil, "submit", "--isolation", "none", "--queue", "nightly", "--", "true")
	c.wants(5, []string{`there is no queue "nihgtly"`, "did you mean nightly?"}, "queue", "pause", "nihgtly")
	c.wants(5, []string{`there is no queue "xyz"`, "there are default or nightly"}, "queue", "pause", "xyz")
	c.wants(5, []string{`there is no queue "xyz"`}, "queue", "resume", "xyz")
	c.wants(5, []string{`there is no batch "xyz"`}, "batch", "pause", "xyz")
	c.wants(5, []string{`there is no queue "xyz"`}, "job", "ls", "--queue", "xyz")
	c.wants(5, []string{`there is no batch "xyz"`}, "job", "ls", "--batch", "xyz")
	c.wants(0, []string{"xyz"}, "queue", "pause", "xyz", "--force")
	c.wants(0, nil, "queue", "resume", "xyz")
	c.wants(0, nil, "job", "ls", "--queue", "default")
}
