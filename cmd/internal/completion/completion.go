// Package completion completes words of the command line in shells: names that the program
// knows, and names that a running pool knows.
package completion

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/chaos"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/jobs"
)

// A Completer completes words for the commands of a shell.
type Completer struct {
	Shell cli.Shell
	// Load reads the settings for a command line. Completion says nothing of its error.
	Load func(*pflag.FlagSet) error
}

// Add makes shells complete each argument and flag that names something, of a command and
// all below it. The operand in the usage line, or the flag's name, says what it names, so
// a new command gets completion if it follows the convention.
func (c Completer) Add(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.Add(sub)
	}
	if complete := c.argumentOf(cmd); complete != nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = complete
	}
	register := func(f *pflag.Flag) {
		if _, done := cmd.GetFlagCompletionFunc(f.Name); done {
			return
		}
		if complete := c.valueOf(f); complete != nil {
			// It fails only for a flag that is not there, or done.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
		}
	}
	cmd.Flags().VisitAll(register)
	cmd.PersistentFlags().VisitAll(register)
}

// argumentOf completes what a command's first operand names; nil for what shells
// complete well enough, or cannot know.
func (c Completer) argumentOf(cmd *cobra.Command) cobra.CompletionFunc {
	operands := strings.Fields(cmd.Use)[1:]
	if len(operands) == 0 {
		return nil
	}
	group := ""
	if cmd.HasParent() {
		group = cmd.Parent().Name()
	}
	many := strings.HasSuffix(strings.Trim(operands[0], "[]"), "…")
	var complete cobra.CompletionFunc
	switch word := strings.TrimSuffix(strings.Trim(operands[0], "[]"), "…"); {
	case word == "ID" && group == "dead":
		complete = c.fromPool(letterIDs, byTime)
	case word == "ID" || strings.HasPrefix(word, "ID|"):
		complete = c.fromPool(jobIDs(fitting[cmd.Name()]), byTime)
	case word == "QUEUE":
		complete = c.fromPool(queueNames, sorted)
	case word == "WORKER":
		complete = c.fromPool(workerNames, sorted)
	case word == "DIR|ID":
		complete = c.fromPool(batchIDs, cobra.ShellCompDirectiveDefault)
	case word == "DIR":
		complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case word == "NAME" && group == "schedule" && cmd.Name() != "add":
		complete = c.fromPool(scheduleNames, sorted)
	case word == "NAME" && group == "token" && cmd.Name() != "add":
		complete = c.fromPool(tokenNames, sorted)
	case word == "NAME" && group == "webhook" && cmd.Name() != "add":
		complete = c.fromPool(webhookNames, sorted)
	case word == "NAME" && group == "credentials":
		complete = c.credentialNames
	case word == "NAME" && group == "agent":
		complete = c.agentNames
	case word == "NAME@VERSION" && cmd.Name() == "install":
		complete = c.agentNames
	case word == "NAME@VERSION":
		complete = c.installedVersions
	case word == "ROLE":
		complete = oneOf(input.Strings(jobs.Roles...))
	case cmd.Name() == "schema":
		return schemaNames
	default:
		return nil
	}
	return operand(complete, many, len(operands) > 1)
}

// schemaNames completes the name of a schema and, behind event and operation, a kind of
// event and an operation.
func schemaNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return append(schema.Names(), "asyncapi", "openapi"), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && args[0] == "event":
		return schema.Kinds(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	case len(args) == 1 && args[0] == "operation":
		return schema.Operations(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// operand completes the first argument, or each one where there may be many,
// but none twice. What follows is a file's name, or nothing.
func operand(c cobra.CompletionFunc, many, more bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			if more {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, sorted
		}
		found, directive := c(cmd, args, begun)
		return slices.DeleteFunc(found, func(word string) bool {
			name, _, _ := strings.Cut(word, "\t")
			return slices.Contains(args, name)
		}), directive
	}
}

// valueOf completes what a flag's value names.
func (c Completer) valueOf(f *pflag.Flag) cobra.CompletionFunc {
	if of, ok := f.Value.(*input.Choice); ok {
		return oneOf(of.Words)
	}
	if f.Value.Type() == "bool" {
		return nil
	}
	fixed := map[string][]string{
		"output":   input.Strings(cli.Table, cli.JSON, cli.JSONL, cli.YAML, cli.IDs),
		"progress": input.Strings(cli.ProgressAuto, cli.ProgressTTY, cli.ProgressPlain, cli.ProgressQuiet),
		"color":    {"auto", "always", "never"}, "redo": {"failed", "error", "all"}, "kinds": chaos.Kinds(),
	}
	if list := fixed[f.Name]; list != nil {
		return listed(f, oneOf(list))
	}
	switch f.Name {
	case "agent":
		return c.agentNames
	case "agents":
		return listed(f, c.agentNames)
	case "queue", "queues":
		return listed(f, c.fromPool(queueNames, sorted))
	case "batch":
		return c.fromPool(batchIDs, sorted)
	case "after":
		return listed(f, c.fromPool(jobIDs(nil), byTime))
	case "from-salvage", "accept", "reject":
		return c.fromPool(jobIDs(hasFinished), byTime)
	case "need", "labels":
		return listed(f, c.fromPool(workerLabels, sorted))
	case "label":
		if f.Value.Type() == "stringArray" { // else it is a jail's name
			return c.fromPool(jobLabels, sorted)
		}
		if f.Value.Type() == "stringSlice" {
			return listed(f, c.fromPool(workerLabels, sorted))
		}
	}
	return nil
}

// oneOf completes one of a few words.
func oneOf(list []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return beginning(slices.Clone(list), begun), sorted
	}
}

// listed completes the last of the words that a flag takes with commas between.
func listed(f *pflag.Flag, c cobra.CompletionFunc) cobra.CompletionFunc {
	if f.Value.Type() != "stringSlice" {
		return c
	}
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		at := strings.LastIndex(begun, ",") + 1
		found, directive := c(cmd, args, begun[at:])
		var whole []cobra.Completion
		for _, word := range found {
			whole = append(whole, begun[:at]+word)
		}
		return whole, directive
	}
}

// fitting says, by the name of a command, which jobs it is for; the others are for any.
var fitting = map[string]func(jobs.Record) bool{
	"wait": goesOn, "cancel": goesOn, "send": goesOn, "answer": goesOn, "attach": goesOn,
	"interrupt": goesOn, "stop": goesOn, "set": goesOn, "raw": goesOn,
	"retry": hasFinished, "diff": hasFinished, "apply": hasFinished, "worktree": hasFinished,
}

func hasFinished(rec jobs.Record) bool { return rec.State == jobs.Finished }
func goesOn(rec jobs.Record) bool      { return rec.State != jobs.Finished }
