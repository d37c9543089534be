package jobflags

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Group is a part of the flags that describe a job, as help shows them.
type Group struct {
	Title string
	Flags string // their names
}

// Groups hold each flag of the commands that take a job's.
var Groups = []Group{
	{"Items", "from-github format map max-input max-items max-line filter slice limit shuffle seed prompt-template var"},
	{"Batch", "agents best-of out redo max-parallel max-failures batch-max-cost batch-max-tokens follow cancel-on-interrupt"},
	{"Model", "allow total-jobs total-cost"},
	{"Calendar", "cron every timezone missed grace overlap replace"},
	{"Repository", "repo ref include-uncommitted from-salvage isolation"},
	{"Agent", "agent agent-version model effort allow-model allow-service-tier allow-inference-geo allow-beta allow-file-id allow-container-id max-turns instructions skill mcp-config interactive terminals file secret"},
	{"Jail", "backend image preset network allow-host env allow-weaker policy"},
	{"Setup and checks", "setup fresh-setup check check-rounds check-report expect-changes result-schema"},
	{"Limits", "timeout idle-timeout max-cost max-tokens on-budget max-attempts memory cpus cpu-weight pids disk inodes output-rate traffic connections"},
	{"Questions", "park-after ask-timeout ask-default ask-fail"},
	{"Scheduling", "queue priority need label run-at after parent"},
	{"Delivery", "deliver pr-base pr-label pr-reviewer draft-text artifact patch apply"},
	{"Submission", "job key strict-key dry-run help"},
}

// grouped marks the commands whose help shows their flags in groups.
const grouped = "penstock_grouped"

// GroupsOf returns the groups in which help shows the flags of a command; none if it shows
// them in one list.
func GroupsOf(cmd *cobra.Command) []Group {
	if cmd.Annotations[grouped] == "" {
		return nil
	}
	return Groups
}

// Of returns the flags of a set that belong to the group, in the group's order.
func (g Group) Of(all *pflag.FlagSet) *pflag.FlagSet {
	own := pflag.NewFlagSet(g.Title, pflag.ContinueOnError)
	own.SortFlags = false
	for name := range strings.FieldsSeq(g.Flags) {
		if f := all.Lookup(name); f != nil {
			own.AddFlag(f)
		}
	}
	return own
}

// Grouped has a command's help show its flags by what they are about.
func Grouped(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[grouped] = "true"
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		var b strings.Builder
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
		}
		for _, g := range Groups {
			if own := g.Of(cmd.LocalFlags()); own.HasAvailableFlags() {
				fmt.Fprintf(&b, "\n%s:\n%s", g.Title, own.FlagUsages())
			}
		}
		fmt.Fprintf(&b, "\nGlobal Flags:\n%s", cmd.InheritedFlags().FlagUsages())
		_, err := io.WriteString(cmd.OutOrStderr(), b.String())
		return err
	})
	return cmd
}
