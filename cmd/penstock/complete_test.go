package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/input"
)

// nothing are operands that no pool and no list knows.
var nothing = []string{
	"FILE", "FILE|-", "FILE|DIR", "PROMPT|-", "PROMPT", "TEXT", "TEXT|-", "JSON|-", "PATH", "QUESTION", "SERVER", "URL", "COMMAND", "COMMAND|TOPIC", "OWNER/REPOSITORY", "flags", "--",
}

// Each argument and each flag that names something is completed, for every command: a
// new one, of an unknown kind, fails here.
func TestWhatNamesSomethingIsCompleted(t *testing.T) {
	t.Parallel()
	kinds := []string{"agent", "queue", "queues", "batch", "after", "need", "labels", "output", "progress", "color"}
	arguments, flags := 0, 0
	everyCommand(func(cmd *cobra.Command) {
		operands := strings.Fields(cmd.Use)[1:]
		if len(operands) > 0 && cmd.Name() != "add" && !slices.Contains(nothing, strings.Trim(operands[0], "[]…")) {
			arguments++
			if cmd.ValidArgsFunction == nil {
				t.Errorf("%s: its argument %s is not completed", cmd.CommandPath(), operands[0])
			}
		}
		each := func(f *pflag.Flag) {
			_, choice := f.Value.(*input.Choice)
			if !choice && (!slices.Contains(kinds, f.Name) || f.Value.Type() == "bool") {
				return
			}
			flags++
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok {
				t.Errorf("%s --%s is not completed", cmd.CommandPath(), f.Name)
			}
		}
		cmd.Flags().VisitAll(each)
		cmd.PersistentFlags().VisitAll(each)
	})
	if arguments < 35 || flags < 50 {
		t.Errorf("only %d arguments and %d flags were found", arguments, flags)
	}
}

// What shells are told comes from the pool that runs.
func TestShellsCompleteFromThePool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1", "--labels", "gpu,docker")
	done := f.submit("true", "--label", "team=web")
	f.run("wait", done)
	runs := f.submit("sleep 600", "--queue", "nightly") // which no worker serves
	completes := func(want, not string, args ...string) {
		t.Helper()
		out := f.run(append([]string{"__complete"}, args...)...)
		if want != "" && !strings.Contains("\n"+out, "\n"+want) || not != "" && strings.Contains(out, not) {
			t.Errorf("%q completes to\n%swant %q, not %q", args, out, want, not)
		}
	}
	completes(done+"\tfinished · success", "", "job", "get", "")
	completes(runs+"\tpending", done, "job", "cancel", "")
	completes(done, runs, "job", "diff", done[:9])
	completes("", runs, "job", "cancel", runs, "")
	completes("", done, "watch", done, "")
	completes(done+","+runs, "", "submit", "--after", done+","+runs[:4])
	completes("nightly", "default", "queue", "pause", "n")
	completes("default", "", "job", "ls", "--queue", "")
	completes("gpu", "docker", "submit", "--need", "g")
	completes("docker,gpu", "", "run", "--need", "docker,g")
	completes("team=web", "", "job", "ls", "--label", "")
	completes("claude", "codex", "submit", "--agent", "cl")
	completes("claude", "codex", "agent", "test", "cl")
	completes("executing", "pending", "job", "ls", "--state", "e")
	f.bash(runs)
	f.run("job", "cancel", runs)
}

// bash completes the id of a job in a real bash.
func (f *fixture) bash(id string) {
	f.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		skip(f, "bash", "%v", err)
	}
	script := fmt.Sprintf(`eval "$(penstock completion bash)"
# The two that a bash of a terminal has: one of the package bash-completion, and one of bash while it completes.
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
compopt() { :; }
COMP_WORDS=(penstock job cancel %s) COMP_CWORD=3 COMP_LINE="penstock job cancel %s" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
$(complete -p penstock | sed 's/.*-F \([^ ]*\) .*/\1/')
printf '%%s\n' "${COMPREPLY[@]}"`, id[:5], id[:5])
	cmd := f.command("bash", "--norc", "-c", script)
	cmd.Path, cmd.Args = bash, []string{"bash", "--norc", "-c", script}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != id {
		f.Errorf("bash completes %s to %q, %v; want %s", id[:5], out, err, id)
	}
}

// Where no pool runs a completion says nothing and makes nothing, and neither it
// nor a broken settings file is in the way of words that need no pool.
func TestCompletionStartsNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, args := range [][]string{{"job", "get", ""}, {"queue", "pause", ""}, {"submit", "--need", ""}, {"--server", "nats://127.0.0.1:1", "watch", ""}} {
		if got := c.wants(0, nil, append([]string{"__completeNoDesc"}, args...)...); got.out != ":4\n" && got.out != ":36\n" {
			t.Errorf("%q completes to %q, want nothing", args, got.out)
		}
	}
	if _, err := os.Stat(c.data); !os.IsNotExist(err) {
		t.Errorf("the data directory is there: %v", err)
	}
	c.write("penstock.yaml", "frobnicate: 1\n")
	if got := c.wants(0, []string{"finished"}, "__complete", "job", "ls", "--state", "f"); strings.Contains(got.err, "frobnicate") {
		t.Errorf("a completion complains of the settings: %s", got.err)
	}
	c.wants(0, nil, "__complete", "job", "get", "")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(c.data), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("a completion left %v, %v", left, err)
	}
}
