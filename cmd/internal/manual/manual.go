// Package manual writes the reference of a program's command line from its tree of
// commands: as Markdown, and as manual pages for man.
//
// Help texts of commands are plain text: paragraphs, and indented lines that are to be
// kept as they are. Hidden commands are left out.
package manual

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/jobflags"
)

// ownData stands for the default of --data, which depends on the user.
const ownData = "~/.local/state/penstock"

// A block is a paragraph of a help text, or lines that are kept as they are.
type block struct {
	text    string
	literal bool
}

// blocks takes a help text apart.
func blocks(text string) []block {
	var all []block
	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		indented := strings.HasPrefix(part, "  ") || strings.HasPrefix(part, "\t")
		switch last := len(all) - 1; {
		case strings.TrimSpace(part) == "":
		case indented && last >= 0 && all[last].literal:
			all[last].text += "\n\n" + part
		default:
			all = append(all, block{part, indented})
		}
	}
	for i, b := range all {
		if b.literal {
			all[i].text = outdent(b.text)
		}
	}
	return all
}

// outdent removes the indentation that all lines share.
func outdent(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\t", "    "), "\n")
	least := len(text)
	for _, line := range lines {
		if rest := strings.TrimLeft(line, " "); rest != "" {
			least = min(least, len(line)-len(rest))
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line[min(least, len(line)):], " ")
	}
	return strings.Join(lines, "\n")
}

// about is what help says first: the long text, or else the short one as a sentence.
func about(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// subcommands are the commands below one that help shows; topics the pages of help that
// are no commands.
func subcommands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

func topics(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return c.Hidden || !c.IsAdditionalHelpTopicCommand() })
}

// walk calls fn for a command and all that help shows below it.
func walk(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, sub := range subcommands(cmd) {
		walk(sub, fn)
	}
}

// usage is how a command is called. A group is called by its subcommands.
func usage(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() && !strings.Contains(cmd.Use, " ") {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

// A group is some flags of a command, with a title if there are more groups.
type group struct {
	title string
	flags []flag
}

// A flag is one of a command line.
type flag struct {
	short, name, value, text, preset string
}

// groups are the flags of a command, without those that every command has.
func groups(cmd *cobra.Command) []group {
	if !cmd.HasParent() {
		return []group{{flags: flags(cmd.PersistentFlags())}}
	}
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.AddFlagSet(cmd.LocalFlags())
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if cmd.Root().PersistentFlags().Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	var all []group
	for _, g := range jobflags.GroupsOf(cmd) {
		all = append(all, group{g.Title, flags(g.Of(own))})
	}
	if all == nil {
		all = []group{{flags: flags(own)}}
	}
	return slices.DeleteFunc(all, func(g group) bool { return len(g.flags) == 0 })
}

// flags are those of a set that help shows, but for help itself.
func flags(set *pflag.FlagSet) []flag {
	var all []flag
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		preset := f.DefValue
		switch {
		case f.Name == "data":
			preset = ownData
		case slices.Contains([]string{"", "0", "false", "[]", "0s", "<nil>"}, preset), strings.Contains(text, "(default"):
			preset = ""
		}
		all = append(all, flag{f.Shorthand, f.Name, value, text, preset})
	})
	return all
}

// sentence begins a text with a capital letter.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
