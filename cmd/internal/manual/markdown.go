package manual

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// made stands at the beginning of each page.
const made = "This page is made from the program: `make generate` writes it."

// notRun stands before examples: they have no pool, and files and names of their own.
const notRun = "<!-- not run: a test looks for the commands and their flags -->"

// Markdown returns the reference of a command line as pages in Markdown, by their paths:
// cli.md with the commands and the flags that all have, and cli/NAME.md for each command
// with its subcommands.
func Markdown(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands\n\n%s `penstock help COMMAND` prints the same for one command, and the manual\npages of the packages have it, too. [Exit codes](exit-codes.md) and [settings](settings.md) have pages of their own.\n\n| command | what it does |\n|---|---|\n", made)
	for _, cmd := range subcommands(root) {
		fmt.Fprintf(&b, "| [`%s`](cli/%s.md) | %s |\n", cmd.CommandPath(), cmd.Name(), prose(cmd.Short))
		pages["cli/"+cmd.Name()+".md"] = page(cmd)
	}
	b.WriteString("\n## Flags of every command\n\n")
	writeFlags(&b, groups(root))
	for _, topic := range topics(root) {
		if topic.Name() == "formats" {
			b.WriteString("## Formats\n\n")
			writeText(&b, root.Name(), topic.Long)
		}
	}
	pages["cli.md"] = tidy(&b)
	return pages
}

// page describes a command, and each below it under a heading of its own.
func page(cmd *cobra.Command) string {
	var b strings.Builder
	walk(cmd, func(c *cobra.Command) {
		if c == cmd {
			fmt.Fprintf(&b, "# %s\n\n%s The flags of every command are in\n[commands](../cli.md#flags-of-every-command).\n\n", c.CommandPath(), made)
		} else {
			fmt.Fprintf(&b, "## %s\n\n", c.CommandPath())
		}
		writeText(&b, c.Root().Name(), about(c))
		fmt.Fprintf(&b, "```usage\n%s\n```\n\n", usage(c))
		if c.HasExample() {
			fmt.Fprintf(&b, "Examples:\n\n%s\n```sh\n%s\n```\n\n", notRun, outdent(c.Example))
		}
		writeFlags(&b, groups(c))
	})
	return tidy(&b)
}

func tidy(b *strings.Builder) string { return strings.TrimRight(b.String(), "\n") + "\n" }

// writeText writes a text about a program. Blocks in it that begin with the program's name
// are commands.
func writeText(b *strings.Builder, program, text string) {
	for _, part := range blocks(text) {
		switch {
		case !part.literal:
			b.WriteString(prose(part.text) + "\n\n")
		case strings.HasPrefix(part.text, program+" "):
			fmt.Fprintf(b, "%s\n```sh\n%s\n```\n\n", notRun, part.text)
		default:
			fmt.Fprintf(b, "```text\n%s\n```\n\n", part.text)
		}
	}
}

func writeFlags(b *strings.Builder, all []group) {
	for _, g := range all {
		title := "flag"
		if g.title != "" {
			title = g.title
		}
		fmt.Fprintf(b, "| %s | meaning | default |\n|---|---|---|\n", title)
		for _, f := range g.flags {
			name := "--" + f.name
			if f.short != "" {
				name = "-" + f.short + ", " + name
			}
			if f.value != "" {
				name += " " + f.value
			}
			preset := ""
			if f.preset != "" {
				preset = "`" + strings.ReplaceAll(f.preset, "|", `\|`) + "`"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, prose(f.text), preset)
		}
		b.WriteString("\n")
	}
}

var (
	// literal is what a help text names as it is typed.
	literal = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`--[a-z][a-z-]*|\b[A-Z][A-Z0-9]*_[A-Z0-9_]*\*?|\b[a-z]+(?:_[a-z]+)+\b|\$[A-Z_]+`)
	})
	special = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "|", `\|`)
)

// prose writes plain text so that Markdown changes nothing in it, and shows what is typed
// as code.
func prose(text string) string {
	var b strings.Builder
	at := 0
	for _, m := range literal().FindAllStringIndex(text, -1) {
		b.WriteString(special.Replace(text[at:m[0]]) + "`" + text[m[0]:m[1]] + "`")
		at = m[1]
	}
	b.WriteString(special.Replace(text[at:]))
	return b.String()
}
