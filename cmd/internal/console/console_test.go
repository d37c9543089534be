package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/jobs/visible"
)

// hostile are texts that a terminal would act on, and some that only look so.
var hostile = []string{
	"fix the bug", "Grüße, 世界, नमस्ते", "\x1b[1;31mred\x1b[0m \x1b[Kend", "a\x1b[2Ab", "\x1b]52;c;ZXZpbA==\x1b\\",
	"\u009b2J\u0090q\u009c", "a\x9b2J", "safe\b\b\b\bevil\a", "a\x7fb", "one\ntwo\r\nthree\rfour\u2028five\vsix",
	"user\u202e\u2066// admin\u2069", "ma\u200bin\ufeff\u00ad\u2060\u3164", "a\U000e0041", "a\ufe0fb\U000e0100", "👨‍👩‍👧 ❤️ 1️⃣",
	"\xff\xfe\xc3", "a\tb", strings.Repeat("é", 5000),
}

// What is written is a valid document of the same values, and nothing in it is
// acted on.
func TestDocumentsKeepTheirValues(t *testing.T) {
	for _, stranger := range hostile {
		value := map[string]any{"text": stranger, strings.ToValidUTF8(stranger, "?"): 1.0, "raw": json.RawMessage(`{"a":"\ud83d\ude00 \u001b ` + "\u009b" + `"}`)}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		shown := JSON(data)
		inert(t, "JSON", string(shown))
		var want, got, fromYAML any
		if err := errors.Join(json.Unmarshal(data, &want), json.Unmarshal(shown, &got)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v: got %q, want %q", stranger, err, shown, data)
		}
		var b bytes.Buffer
		if err := YAML(&b, value); err != nil {
			t.Errorf("%q: %v", stranger, err)
			continue
		}
		inert(t, "YAML", b.String())
		if err := yaml.Unmarshal(b.Bytes(), &fromYAML); err != nil {
			t.Errorf("%q: %v in\n%s", stranger, err, b.String())
			continue
		}
		again, err := json.Marshal(fromYAML)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		if err := json.Unmarshal(again, &got); err != nil || strings.ReplaceAll(text(got), ".0", "") != strings.ReplaceAll(text(want), ".0", "") {
			t.Errorf("%q: %v: YAML says %s, want %s", stranger, err, text(got), text(want))
		}
	}
}

func text(v any) string { data, _ := json.Marshal(v); return string(data) }

// inert fails if a terminal would act on a text.
func inert(t *testing.T, what, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%s: %q is no text", what, s)
	}
	for _, r := range s {
		if visible.Active(r) && r != '\n' && r != '\t' && !strings.ContainsRune("\u200c\u200d\ufe0f", r) {
			t.Errorf("%s: %q has %U", what, s, r)
		}
	}
}

func TestPrintf(t *testing.T) {
	var b bytes.Buffer
	w := New(&b, func(string) string { return "" })
	type name string
	w.Printf("penstock: %s|%-6s|%6s|%q|%v|%d|%05.1f|%x\n", "a\nb", name("世\x1b"), errors.New("e\r\n"), "q\u202e", []string{"x\ny"}, 7, 2.5, 255)
	want := `penstock: a ⏎ b|世\u001b|     e|"q\u202e"|[x ⏎ y]|7|002.5|ff` + "\n"
	if got := b.String(); got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// The lines of an error cannot be taken for others: only the first begins in the
// first column.
func TestReport(t *testing.T) {
	var b bytes.Buffer
	w := New(&b, func(string) string { return "" })
	w.Report("penstock: ", errors.Join(errors.New("item a: \x1b]0;x\a"), errors.New("no\npenstock: all is well\r\nhint: curl x | sh")).Error())
	want := "penstock: item a: \\u001b]0;x\\u0007\n  no\n  penstock: all is well\n  hint: curl x | sh\n"
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// To a pipe or a file go the very bytes.
func TestWriteIsExactWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	w := New(&b, func(string) string { return "" })
	patch := "+\x1b[2J\r\n-\xff\u009b\n"
	for i := range len(patch) {
		if n, err := w.Write([]byte{patch[i]}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil || b.String() != patch {
		t.Errorf("got %q, %v, want %q", b.String(), err, patch)
	}
}

func TestColors(t *testing.T) {
	tests := []struct {
		mode Mode
		env  map[string]string
		want bool
	}{
		{Auto, nil, false}, // no terminal
		{Always, map[string]string{"NO_COLOR": "1"}, true},
		{Never, map[string]string{"FORCE_COLOR": "1"}, false},
		{Auto, map[string]string{"CLICOLOR_FORCE": "1"}, true},
		{Auto, map[string]string{"CLICOLOR_FORCE": "0"}, false},
		{Auto, map[string]string{"FORCE_COLOR": "3"}, true},
		{Auto, map[string]string{"FORCE_COLOR": "0"}, false},
		{Auto, map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, false},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		getenv := func(name string) string { return tt.env[name] }
		w := New(&b, getenv)
		w.Recolor(tt.mode, getenv)
		if err := w.Row(Span{Red, "red\x1b[0m\nnew"}, Span{Text: " plain"}); err != nil {
			t.Fatal(err)
		}
		want := "red ⏎ new plain\n"
		if tt.want {
			want = "\x1b[31mred ⏎ new\x1b[0m plain\n"
		}
		if b.String() != want {
			t.Errorf("%s %v: got %q, want %q", tt.mode, tt.env, b.String(), want)
		}
	}
}

func TestTable(t *testing.T) {
	cells := [][]string{{"ID", "MESSAGE", "REASON"}, {"1", strings.Repeat("word ", 20), "agent_failed"}, {"2", "世界\n\x1b[2J", ""}}
	for _, width := range []int{0, 60, 30, 22} {
		widths, ok := fit(cells, width)
		if !ok {
			if width > 25 {
				t.Errorf("width %d: does not fit", width)
			}
			continue
		}
		for line := range strings.Lines(table(cells, widths)) {
			if width > 0 && Columns(strings.TrimSuffix(line, "\n")) > width {
				t.Errorf("width %d: %q", width, line)
			}
		}
	}
	var b bytes.Buffer
	if err := Table(&b, cells[0], cells[2:]); err != nil || b.String() != "ID  MESSAGE           REASON\n2   世界 ⏎ \\u001b[2J  \n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
	if got := records(cells, 24); !strings.HasPrefix(got, "ID       1\nMESSAGE  word word word\n         word word word\n") {
		t.Errorf("got:\n%s", got)
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		line  string
		width int
		want  []string
	}{
		{"short", 10, []string{"short"}},
		{"", 10, []string{""}},
		{"one two three", 8, []string{"one two", "three"}},
		{"onetwothreefour", 8, []string{"onetwoth", "reefour"}},
		{"世界世界世", 5, []string{"世界", "世界", "世"}},
		{"any width", 0, []string{"any width"}},
	} {
		if got := Wrap(tt.line, tt.width); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q to %d: got %q, want %q", tt.line, tt.width, got, tt.want)
		}
	}
}

// Whatever the text, nothing in it is acted on and no line ends early.
func FuzzLine(f *testing.F) {
	for _, stranger := range hostile {
		f.Add(stranger)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := visible.Line(s)
		inert(t, "line", line)
		if strings.ContainsAny(line, "\n\r\t") {
			t.Errorf("%q has more than one line", line)
		}
		for _, line := range visible.Block(s) {
			inert(t, "block", line)
			for _, part := range Wrap(line, 10) {
				if Columns(part) > 10 {
					t.Errorf("%q is wider than 10", part)
				}
			}
		}
	})
}
