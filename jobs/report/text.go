package report

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// terminal matches what colours and moves the cursor of a terminal.
var terminal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[@-Z\\\\-_])")
})

// Clean drops control characters but for line ends and tabs, and shows those
// that turn the direction of text around: they can make a line look like
// another one.
func Clean(s string) string {
	turns := func(r rune) bool {
		return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u200e' || r == '\u200f'
	}
	if strings.ContainsRune(s, '\x1b') {
		s = terminal().ReplaceAllString(s, "")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
	if !strings.ContainsFunc(s, turns) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if turns(r) {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Line is text as it fits a table's cell.
func Line(s string, most int) string {
	s = strings.Join(strings.Fields(Clean(s)), " ")
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

// Seconds writes a duration for people: 0.42 s, 12 s, 3 m 20 s, 2 h 5 m.
func Seconds(v float64) string {
	switch {
	case v <= 0:
		return "–"
	case v < 10:
		return fmt.Sprintf("%.2g s", v)
	case v < 60:
		return fmt.Sprintf("%.0f s", v)
	case v < 3600:
		return fmt.Sprintf("%d m %02d s", int(v)/60, int(v)%60)
	}
	return fmt.Sprintf("%d h %02d m", int(v)/3600, int(v)%3600/60)
}

// Number writes a number with a blank every three digits.
func Number(n int64) string {
	if n < 0 {
		return "-" + Number(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return Number(n/1000) + fmt.Sprintf("\u202f%03d", n%1000)
}

// Dollars writes a cost for people: of less than a cent two digits, so that small ones can be compared.
func Dollars(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 0.0001:
		return "< $0.0001"
	case v < 0.01:
		return fmt.Sprintf("$%.2g", v)
	}
	return fmt.Sprintf("$%.2f", v)
}
