package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/jobflags"
)

// Each flag of the commands that take a job's is in one group, and help shows it
// there, once.
func TestFlagsOfAJobAreGrouped(t *testing.T) {
	t.Parallel()
	groupOf, used := map[string]string{}, map[string]bool{}
	for _, g := range jobflags.Groups {
		for name := range strings.FieldsSeq(g.Flags) {
			if groupOf[name] != "" {
				t.Errorf("--%s is in %s and in %s", name, groupOf[name], g.Title)
			}
			groupOf[name] = g.Title
		}
	}
	var commands []string
	everyCommand(func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("check-rounds") == nil {
			return
		}
		commands = append(commands, cmd.CommandPath())
		cmd.InitDefaultHelpFlag()
		shown := shownGroups(cmd.UsageString())
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			if groupOf[f.Name] == "" {
				t.Errorf("%s --%s is in no group", cmd.CommandPath(), f.Name)
			}
			if got := shown[f.Name]; !slices.Equal(got, []string{groupOf[f.Name]}) {
				t.Errorf("%s --%s is shown under %q, want %q", cmd.CommandPath(), f.Name, got, groupOf[f.Name])
			}
		})
		if !slices.Equal(shown["data"], []string{"Global Flags"}) {
			t.Errorf("%s: --data is shown under %q", cmd.CommandPath(), shown["data"])
		}
	})
	for name := range groupOf {
		if !used[name] {
			t.Errorf("--%s is in a group, and a flag of no command", name)
		}
	}
	want := []string{"penstock batch run", "penstock mcp", "penstock run", "penstock schedule add", "penstock submit"}
	if slices.Sort(commands); !slices.Equal(commands, want) {
		t.Errorf("the commands that take a job's flags are %q, want %q", commands, want)
	}
	newCaller(t).wants(0, []string{"\nQuestions:\n", "\nScheduling:\n", "Examples:", "--strict-key"}, "submit", "--help")
}

var flagLine = regexp.MustCompile(`^ +(?:-\w, )?    --([\w-]+)|^ +-\w, --([\w-]+)`)

// shownGroups reads the headings under which a help text has each flag.
func shownGroups(help string) map[string][]string {
	shown, heading := map[string][]string{}, ""
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " ") {
			heading = strings.TrimSuffix(line, ":")
		}
		if m := flagLine.FindStringSubmatch(line); m != nil {
			shown[m[1]+m[2]] = append(shown[m[1]+m[2]], heading)
		}
	}
	return shown
}
