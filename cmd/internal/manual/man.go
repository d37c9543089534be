package manual

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Man returns the manual pages of a command line, by their file names: one of section 1
// for each command, and one of section 7 for each topic of its help.
func Man(root *cobra.Command, release string, date time.Time) map[string]string {
	pages := map[string]string{}
	begin := func(cmd *cobra.Command, section int) *strings.Builder {
		var b strings.Builder
		fmt.Fprintf(&b, ".TH \"%s\" \"%d\" \"%s\" \"%s %s\" \"Manual\"\n.SH NAME\n%s \\- %s\n",
			roff(strings.ToUpper(manName(cmd))), section, date.UTC().Format(time.DateOnly), root.Name(), roff(release), roff(manName(cmd)), roff(cmd.Short))
		return &b
	}
	walk(root, func(cmd *cobra.Command) {
		b := begin(cmd, 1)
		fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff(usage(cmd)))
		describe(b, about(cmd))
		commandList(b, cmd)
		options(b, cmd)
		if cmd.HasExample() {
			fmt.Fprintf(b, ".SH EXAMPLES\n.EX\n%s\n.EE\n", roff(outdent(cmd.Example)))
		}
		seeAlso(b, cmd)
		pages[manName(cmd)+".1"] = b.String()
	})
	for _, topic := range topics(root) {
		b := begin(topic, 7)
		b.WriteString(".SH DESCRIPTION\n")
		describe(b, topic.Long)
		fmt.Fprintf(b, ".SH SEE ALSO\n.BR %s (1)\n", root.Name())
		pages[manName(topic)+".7"] = b.String()
	}
	return pages
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func describe(b *strings.Builder, text string) {
	for i, part := range blocks(text) {
		switch {
		case part.literal:
			fmt.Fprintf(b, ".PP\n.EX\n%s\n.EE\n", roff(part.text))
		case i == 0: // a paragraph begins with its section
			b.WriteString(roff(part.text) + "\n")
		default:
			b.WriteString(".PP\n" + roff(part.text) + "\n")
		}
	}
}

func commandList(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, sub := range subcommands(cmd) {
		fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(manName(sub)), roff(sub.Short))
	}
}

func options(b *strings.Builder, cmd *cobra.Command) {
	all := groups(cmd)
	if len(all) > 0 {
		b.WriteString(".SH OPTIONS\n")
	}
	for _, g := range all {
		if g.title != "" {
			fmt.Fprintf(b, ".SS %s\n", roff(g.title))
		}
		for _, f := range g.flags {
			b.WriteString(".TP\n")
			if f.short != "" {
				fmt.Fprintf(b, `\fB\-%s\fR, `, f.short)
			}
			fmt.Fprintf(b, `\fB\-\-%s\fR`, roff(f.name))
			if f.value != "" {
				fmt.Fprintf(b, ` \fI%s\fR`, roff(f.value))
			}
			b.WriteString("\n" + roff(sentence(f.text)))
			if f.preset != "" {
				b.WriteString(roff(" (default " + f.preset + ")"))
			}
			b.WriteString("\n")
		}
	}
	if cmd.HasParent() {
		fmt.Fprintf(b, ".PP\nThe options of every command are in\n.BR %s (1).\n", cmd.Root().Name())
	}
}

// seeAlso names the pages around one.
func seeAlso(b *strings.Builder, cmd *cobra.Command) {
	b.WriteString(".SH SEE ALSO\n")
	if cmd.HasParent() {
		fmt.Fprintf(b, ".BR %s (1),\n.BR %s\\-exit\\-codes (7)\n", roff(manName(cmd.Parent())), cmd.Root().Name())
		return
	}
	names := topics(cmd)
	for i, topic := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (7)%s\n", roff(manName(topic)), end)
	}
}

// roff writes plain text so that man shows it as it is, also where a line begins with
// what would be a request. What is not ASCII is named by its code point, since not every
// formatter is told the encoding.
func roff(text string) string {
	var b strings.Builder
	lineBegins := true
	for _, r := range text {
		switch {
		case lineBegins && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		lineBegins = r == '\n'
	}
	return b.String()
}
