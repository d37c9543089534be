// Package aboutcmd is what the program says of itself: the commands config, schema and
// version, and pages of help that are no commands.
package aboutcmd

import (
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// Topics are pages of help that are no commands.
func Topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "Exit codes of commands, for scripts", Long: exitCodesHelp()},
		{Use: "environment", Short: "The variables that commands read", Long: environment()},
		{Use: "formats", Short: "Output of -o, and input of batch run", Long: formatsHelp},
	}
}

// environment lists the settings that are variables, too.
func environment() string {
	var b strings.Builder
	b.WriteString(`Every setting is a flag, a variable or a line of a settings file. A flag overrides the
variable, which overrides the file (--config, else ./penstock.yaml, else the user's),
which overrides the default. penstock config view prints the settings in effect.

`)
	variables(reflect.TypeFor[cli.Config](), cli.EnvPrefix, func(name, doc string) { b.WriteString("  " + name + "\n      " + doc + "\n") })
	b.WriteString(`
The three keys are also read from the variables of their providers: ANTHROPIC_API_KEY,
OPENAI_API_KEY, and GOOGLE_API_KEY or GEMINI_API_KEY.`)
	return b.String()
}

// variables calls fn for each variable of a struct of settings.
func variables(settings reflect.Type, prefix string, fn func(name, doc string)) {
	for f := range settings.Fields() {
		if more := f.Tag.Get("envPrefix"); more != "" {
			variables(f.Type, prefix+more, fn)
		} else if name, _, _ := strings.Cut(f.Tag.Get("env"), ","); name != "" {
			fn(prefix+name, f.Tag.Get("doc"))
		}
	}
}

const formatsHelp = `-o sets the format of data on standard output; everything else goes to standard error.

  table   for people; it may change
  json    one document, with the keys of the API
  jsonl   one object a line
  yaml    the same keys, as YAML
  id      the ids alone, one a line, for other commands

batch run reads the format that --format names, or detects it from the content:

  jsonl      one job a line; penstock schema job describes it
  json       a list of jobs, or one
  yaml       defaults: and jobs:, and matrix: for each job with each of several values
  csv        a header and rows; --map field=Column names columns
  gh-issues  what gh issue list --json number,title,body,url,labels prints
  swebench   SWE-bench instances, JSON or JSON Lines`
