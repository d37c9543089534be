// Package strict refuses what a command does not know, as an error of usage that names the
// way out: subcommands, topics, arguments and numbers.
package strict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
)

// Make makes each command of a tree refuse what it does not know, as an error of
// usage: a group a subcommand that it does not have, and any command arguments
// that are missing or too many.
func Make(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		Make(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Unknown(cmd, args[0])
			}
			return cmd.Help()
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return checkArgs(cmd, args, check) }
	}
}

// checkArgs says in words what is wrong with the arguments.
func checkArgs(cmd *cobra.Command, args []string, check cobra.PositionalArgs) error {
	if cmd.HasSubCommands() && len(args) > 0 && cmd.HasParent() {
		takesNone := !strings.Contains(cmd.Use, " ")
		if takesNone || input.Like(args[0], subcommands(cmd)) != "" {
			return Unknown(cmd, args[0])
		}
	}
	err := check(cmd, args)
	if err == nil {
		return nil
	}
	usage := "usage: " + cmd.UseLine()
	for more := 1; more <= 3; more++ {
		if check(cmd, append(slices.Clone(args), make([]string, more)...)) == nil {
			operand := "an argument"
			if operands := strings.Fields(cmd.Use)[1:]; len(operands) > len(args) {
				operand = operands[len(args)]
			}
			return cli.Usage(usage, "%s: %s is missing", cmd.CommandPath(), operand)
		}
	}
	for n := len(args) - 1; n >= 0; n-- {
		if check(cmd, args[:n]) == nil {
			return cli.Usage(usage, "%s: unexpected argument %q", cmd.CommandPath(), args[n])
		}
	}
	return cli.Usage(usage, "%s: %w", cmd.CommandPath(), err)
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return names
}

// Unknown is the error for a word that is no subcommand of a command.
func Unknown(cmd *cobra.Command, word string) error {
	if !cmd.HasParent() {
		hint := `run "penstock help"`
		if like := input.Like(word, subcommands(cmd)); like != "" {
			hint = fmt.Sprintf("did you mean %q? %s", "penstock "+like, hint)
		}
		return cli.Usage(hint, "unknown command %q", word)
	}
	hint := fmt.Sprintf("run %q", cmd.CommandPath()+" --help")
	if like := input.Like(word, subcommands(cmd)); like != "" {
		hint = fmt.Sprintf("did you mean %q? %s", cmd.CommandPath()+" "+like, hint)
	}
	return cli.Usage(hint, "unknown command %q of %s", word, cmd.CommandPath())
}

// mayBeNegative are the flags for which a number below 0 means something.
var mayBeNegative = []string{"seed"}

// CheckFlags refuses what no command means, whatever flag it is given to.
func CheckFlags(cmd *cobra.Command) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return cli.Usage("", "%w", err)
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return cli.Usage("", "%w", err)
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		numbers := []string{"int", "int64", "float64", "duration"}
		if err == nil && slices.Contains(numbers, f.Value.Type()) && strings.HasPrefix(f.Value.String(), "-") && !slices.Contains(mayBeNegative, f.Name) {
			err = cli.Usage("", "--%s: %s is less than 0", f.Name, f.Value)
		}
	})
	return err
}

// NewHelp returns the command help: it explains commands and topics, and refuses what is neither.
func NewHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND|TOPIC]", Short: "Explain a command or a topic",
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // settings that are broken break no help
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			at, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return subcommands(at), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, name := range args {
				next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
				if next < 0 {
					return Unknown(at, name)
				}
				at = at.Commands()[next]
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}
