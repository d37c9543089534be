package console

import (
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs/visible"
)

// Mode says when our own words are coloured.
type Mode string

// The modes of --color.
const (
	Auto   Mode = "auto"
	Always Mode = "always"
	Never  Mode = "never"
)

// String, Set and Type make Mode a flag.
func (m *Mode) String() string { return string(*m) }

// Type names the flag's value in help texts.
func (m *Mode) Type() string { return "when" }

// Set accepts one of the three modes.
func (m *Mode) Set(s string) error {
	switch v := Mode(s); v {
	case Auto, Always, Never:
		*m = v
		return nil
	}
	return fmt.Errorf("%q is not one of auto, always and never", s)
}

// colored decides: first the flag, then the variables that many programs know, then the
// terminal's abilities. A variable that forbids colors overrides one that forces them.
func colored(mode Mode, w *Writer, getenv func(string) string) bool {
	set := func(name string) bool { v := getenv(name); return v != "" && v != "0" && v != "false" }
	switch {
	case mode != Auto:
		return mode == Always
	case getenv("NO_COLOR") != "":
		return false
	case set("CLICOLOR_FORCE"), set("FORCE_COLOR"):
		return true
	case getenv("CLICOLOR") == "0", getenv("FORCE_COLOR") != "":
		return false
	}
	return w.tty != nil && !w.dumb
}

// A Style is how a span is shown if there are colors.
type Style string

// The styles, as the parameters of the sequence that begins them. They are taken
// from the sixteen colours that a user's theme defines.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
	Alert  Style = "1;33"
)

// A Span is text in one style.
type Span struct {
	Style Style
	Text  string
}

// Row writes one line. It makes the text of each span visible first, and colors it
// then.
func (w *Writer) Row(spans ...Span) error { return w.print(w.spans(spans) + "\n") }

func (w *Writer) spans(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		text := visible.Line(s.Text)
		if w.color && s.Style != Plain && text != "" {
			text = "\x1b[" + string(s.Style) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	return b.String()
}

// Colored reports whether our own words are coloured.
func (w *Writer) Colored() bool { return w.color }

// Sequences returns those that begin and end the style, for a program that draws a
// whole screen.
func (s Style) Sequences() (begin, end string) {
	if s == Plain {
		return "", ""
	}
	return "\x1b[" + string(s) + "m", "\x1b[0m"
}
