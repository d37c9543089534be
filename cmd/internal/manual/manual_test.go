package manual

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// tree is a program whose texts have all that a formatter could act on.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Does it"}
	root.PersistentFlags().String("data", "/home/someone/data", "directory")
	group := &cobra.Command{Use: "job", Short: "Show jobs"}
	ls := &cobra.Command{
		Use: "ls [NAME…]", Short: "List jobs", Run: func(*cobra.Command, []string) {},
		Long:    "Ls lists *jobs* of <PENSTOCK_DATA> | \\more, `with` --limit.\n.so is no request of roff, and\n'quoted' is none.\n\n  one    1\n    two  2\n\n\tand -o id\n\nThe end.",
		Example: "  tool job ls --limit 3\n  .hidden",
	}
	ls.Flags().IntP("limit", "n", 7, "at most so many `jobs`")
	ls.Flags().Bool("secret", false, "")
	_ = ls.Flags().MarkHidden("secret")
	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	group.AddCommand(ls, hidden)
	root.AddCommand(group, &cobra.Command{Use: "exit-codes", Short: "Exit codes", Long: "The codes:\n\n  0  done"})
	return root
}

func TestMarkdown(t *testing.T) {
	pages := Markdown(tree())
	if got, want := slices.Sorted(maps.Keys(pages)), []string{"cli.md", "cli/job.md"}; !slices.Equal(got, want) {
		t.Fatalf("got pages %q, want %q", got, want)
	}
	for name, want := range map[string][]string{
		"cli.md": {"| [`tool job`](cli/job.md) | Show jobs |", "| `--data string` | directory | `~/.local/state/penstock` |"},
		"cli/job.md": {
			"# tool job\n", "```usage\ntool job COMMAND\n```", "## tool job ls\n\nLs lists \\*jobs\\* of \\<`PENSTOCK_DATA`> \\| \\\\more, \\`with\\` `--limit`.\n.so is",
			"```text\none    1\n  two  2\n\n  and -o id\n```\n\nThe end.", "```usage\ntool job ls [NAME…] [flags]\n```", "Examples:\n\n" + notRun + "\n```sh\ntool job ls --limit 3\n.hidden\n```",
			"| `-n, --limit jobs` | at most so many jobs | `7` |",
		},
	} {
		for _, text := range want {
			if !strings.Contains(pages[name], text) {
				t.Errorf("%s: got\n%s\nwant in it %q", name, pages[name], text)
			}
		}
		for _, text := range []string{"hidden\n\n", "secret", "/home/someone"} {
			if strings.Contains(pages[name], text) {
				t.Errorf("%s has %q:\n%s", name, text, pages[name])
			}
		}
	}
}

func TestMan(t *testing.T) {
	pages := Man(tree(), "v1.2.3-rc.1", time.Unix(0, 0))
	if got, want := slices.Sorted(maps.Keys(pages)), []string{"tool-exit-codes.7", "tool-job-ls.1", "tool-job.1", "tool.1"}; !slices.Equal(got, want) {
		t.Fatalf("got pages %q, want %q", got, want)
	}
	for name, want := range map[string][]string{
		"tool-job-ls.1": {
			`.TH "TOOL\-JOB\-LS" "1" "1970-01-01" "tool v1.2.3\-rc.1"`, "tool\\-job\\-ls \\- List jobs\n", "\n\\&.so is", "\n\\&'quoted\\(aq",
			".EX\none    1\n  two  2\n\n  and \\-o id\n.EE", "\\&.hidden\n.EE", "\\fB\\-n\\fR, \\fB\\-\\-limit\\fR \\fIjobs\\fR\nAt most so many jobs (default 7)\n", "tool job ls [NAME\\[u2026]] [flags]",
		},
		"tool.1": {".BR tool\\-job (1)\nShow jobs\n", ".BR tool\\-exit\\-codes (7)\n", "(default ~/.local/state/penstock)"},
	} {
		for _, text := range want {
			if !strings.Contains(pages[name], text) {
				t.Errorf("%s: got\n%s\nwant in it %q", name, pages[name], text)
			}
		}
	}
}
