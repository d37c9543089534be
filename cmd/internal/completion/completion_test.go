package completion

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is a program with a few commands, on a data directory that no pool has used.
func tree(t *testing.T) *cobra.Command {
	t.Helper()
	cfg, format, progress := cli.Defaults(), cli.Table, cli.ProgressQuiet
	cfg.Data = t.TempDir()
	w := console.New(&bytes.Buffer{}, func(string) string { return "" })
	shell := cli.Shell{Out: w, Err: w, Config: &cfg, Format: &format, Progress: &progress}
	do := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "penstock"}
	show := &cobra.Command{Use: "schema NAME", Run: do}
	grant := &cobra.Command{Use: "grant ROLE…", Run: do}
	grant.Flags().VarP(&format, "output", "o", "")
	grant.Flags().StringSlice("kinds", nil, "")
	read := &cobra.Command{Use: "read ID FILE", Run: do}
	root.AddCommand(show, grant, read)
	Completer{Shell: shell, Load: func(*pflag.FlagSet) error { return nil }}.Add(root)
	return root
}

// What a shell offers follows from the operand in the usage line, and from the flag.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line      []string
		want      string // is offered; empty: no word is
		not       string
		directive string
	}{
		{[]string{"schema", "ev"}, "event", "", ":4"},
		{[]string{"schema", "event", "job.sub"}, "job.submitted", "", ":36"},
		{[]string{"grant", ""}, "viewer", "", ":4"},
		{[]string{"grant", "viewer", ""}, "operator", "viewer", ":4"},
		{[]string{"grant", "-o", "j"}, "jsonl", "table", ":4"},
		{[]string{"grant", "--kinds", "kill worker,stop"}, "kill worker,stop worker", "", ":4"},
		{[]string{"read", ""}, "", "", ":36"},     // no pool has been on the data directory
		{[]string{"read", "x", ""}, "", "", ":0"}, // which has the shell complete a file
		{[]string{"read", "x", "y", ""}, "", "", ":0"},
	} {
		t.Run(strings.Join(tt.line, " "), func(t *testing.T) {
			t.Parallel()
			root := tree(t)
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&bytes.Buffer{})
			root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, tt.line...))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			words := strings.Split(strings.TrimSpace(out.String()), "\n")
			directive := words[len(words)-1]
			words = words[:len(words)-1]
			if tt.want == "" && len(words) > 0 || tt.want != "" && !slices.Contains(words, tt.want) || tt.not != "" && slices.Contains(words, tt.not) {
				t.Errorf("offers %q, want %q and not %q", words, tt.want, tt.not)
			}
			if directive != tt.directive {
				t.Errorf("directive %s, want %s", directive, tt.directive)
			}
		})
	}
}
