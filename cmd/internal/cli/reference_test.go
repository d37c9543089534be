package cli

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/settings.md")

const madeOf = "This page is made from the program: `make generate` writes it."

// TestReferenceOfSettings holds docs/reference/settings.md against the types that files
// and variables are read into.
func TestReferenceOfSettings(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/~")
	var b strings.Builder
	b.WriteString("# Settings and variables\n\n" + madeOf + ` A setting is a flag, a variable or a line of a
settings file. A flag overrides the variable, which overrides the file (` + "`--config`" + `, else ` + "`./penstock.yaml`" + `, else
the user's ` + "`penstock/config.yaml`" + `), which overrides the default. ` + "`penstock config view`" + ` prints the settings in
effect, and [commands](cli.md) has the flags. A list in a variable has commas between its elements. A variable or a line that is
not valid is an error, which names it. ` + "`PENSTOCK_SECRET_NAME`" + ` on a worker is the secret NAME of jobs.
`)
	settings := reflect.ValueOf(Defaults())
	writeSettings(&b, settings, "", EnvPrefix)
	b.WriteString("\nThe three keys are also read from the variables of their providers: `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, and\n`GOOGLE_API_KEY` or `GEMINI_API_KEY`. Variables that begin with `OTEL_` turn on and set the\n[export of traces](../how-to/traces.md#export-traces).\n")
	goldentest.Compare(t, "../../../docs/reference/settings.md", b.String(), *update)
}

// writeSettings writes the table of a struct, and then those of the structs in it.
func writeSettings(b *strings.Builder, settings reflect.Value, path, prefix string) {
	title := "Of every command"
	if path != "" {
		title = "`" + strings.TrimSuffix(path, ".") + "`"
	}
	fmt.Fprintf(b, "\n## %s\n\n| setting | variable | type | default | meaning |\n|---|---|---|---|---|\n", title)
	var deeper []func()
	for f, value := range settings.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		variable := f.Tag.Get("env")
		if more := f.Tag.Get("envPrefix"); more != "" {
			deeper = append(deeper, func() { writeSettings(b, value, path+key+".", prefix+more) })
			continue
		}
		if f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Struct && f.Type.Elem().Field(0).Tag.Get("doc") != "" {
			deeper = append(deeper, func() { writeSettings(b, reflect.Zero(f.Type.Elem()), path+key+".NAME.", "") })
		}
		if key == "-" {
			key = ""
		}
		if key+variable == "" {
			continue // Load fills it
		}
		if prefix == "" {
			variable = ""
		} else if variable != "" {
			variable = prefix + variable
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", code(key), code(variable), kind(f.Type), code(preset(value)), strings.ReplaceAll(f.Tag.Get("doc"), "|", `\|`))
	}
	for _, write := range deeper {
		write()
	}
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "map"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	}
	return "number"
}

// preset is a default as a file has it.
func preset(value reflect.Value) string {
	if value.IsZero() || value.Kind() == reflect.Map {
		return ""
	}
	if d, ok := value.Interface().(time.Duration); ok {
		text := d.String()
		for _, none := range []string{"m0s", "h0m"} {
			text = strings.Replace(text, none, none[:1], 1)
		}
		return text
	}
	if list, ok := value.Interface().([]string); ok {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return strings.Replace(fmt.Sprint(value.Interface()), "/~/", "~/.local/state/", 1)
}
