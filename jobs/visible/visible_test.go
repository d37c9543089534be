package visible

import (
	"reflect"
	"strings"
	"testing"
)

var hostile = []struct{ name, text, line string }{
	{"words", "fix the bug", "fix the bug"},
	{"letters", "Grüße, 世界, नमस्ते", "Grüße, 世界, नमस्ते"},
	{"colours", "\x1b[1;31mred\x1b[0m \x1b[Kend", "red end"},
	{"cursor", "a\x1b[2Ab", `a\u001b[2Ab`},
	{"title", "\x1b]0;mine\x07", `\u001b]0;mine\u0007`},
	{"clipboard", "\x1b]52;c;ZXZpbA==\x1b\\", `\u001b]52;c;ZXZpbA==\u001b\`},
	{"C1", "\u009b2J\u0090q\u009c", `\u009b2J\u0090q\u009c`},
	{"C1 as a byte", "a\x9b2J", `a\x9b2J`},
	{"backspace and bell", "safe\b\b\b\bevil\a", `safe\u0008\u0008\u0008\u0008evil\u0007`},
	{"delete", "a\x7fb", `a\u007fb`},
	{"lines", "one\ntwo\r\nthree\rfour\u2028five\vsix", "one ⏎ two ⏎ three ⏎ four ⏎ five ⏎ six"},
	{"bidi", "user\u202e\u2066// admin\u2069", `user\u202e\u2066// admin\u2069`},
	{"marks of direction", "a\u200e\u200f\u061cb", `a\u200e\u200f\u061cb`},
	{"nothing to see", "ma\u200bin\ufeff\u00ad\u2060\u3164", `ma\u200bin\ufeff\u00ad\u2060\u3164`},
	{"tags", "a\U000e0041", `a\udb40\udc41`},
	{"variation selectors", "a\ufe0fb\U000e0100", `a\ufe0fb\udb40\udd00`},
	{"an emoji", "👨‍👩‍👧 ❤️ 1️⃣", "👨‍👩‍👧 ❤️ 1️⃣"},
	{"Persian", "می\u200cخواهم", "می\u200cخواهم"},
	{"a joiner alone", "ab\u200dcd", `ab\u200dcd`},
	{"no text", "\xff\xfe\xc3", `\xff\xfe\xc3`},
	{"marks", "a" + strings.Repeat("\u0301", 10), "a" + strings.Repeat("\u0301", 8) + `\u0301\u0301`},
	{"tab", "a\tb", "a b"},
	{"long", strings.Repeat("é", 5000), strings.Repeat("é", 4000) + " … (1000 more characters)"},
}

func TestLine(t *testing.T) {
	for _, tt := range hostile {
		if got := Line(tt.text); got != tt.line {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.line)
		}
	}
}

func TestBlock(t *testing.T) {
	got := Block("\n\n\x1b[32mok\x1b[0m\tyes  \r\n 10%\r 20%\n\x1b[1Aup\n\n")
	want := []string{"ok  yes", " 10%", " 20%", `\u001b[1Aup`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
