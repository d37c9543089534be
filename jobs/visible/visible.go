// Package visible shows text of strangers to people: characters that a terminal or a page
// would act on, or that show nothing, are written as JSON writes them; values only.
package visible

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxLine bounds the result of Line, in characters. A longer text is not a name or
	// a message.
	maxLine = 4000
	// maxMarks is how many marks may stand on one character. More of them cover
	// the lines above and below.
	maxMarks = 8
	// lineBreak stands where Line found the end of a line.
	lineBreak = "⏎"
)

// invisible are the characters that change how others are shown, or are shown as
// nothing, so that two texts look the same.
var invisible = []*unicode.RangeTable{
	unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
}

// joining are the scripts that are written with joiners between letters.
var joining = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
	unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
}

// Active reports whether a terminal acts on a character, or shows nothing for it.
func Active(r rune) bool {
	if r < 0x20 || 0x7f <= r && r < 0xa0 {
		return true
	}
	return r > 0x7f && unicode.In(r, invisible...) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// joins reports whether an invisible character joins its two neighbours as intended:
// letters of a script, or symbols to an emoji.
func joins(before, r, after rune) bool {
	switch r {
	case 0x200c, 0x200d:
		return unicode.In(before, joining...) && unicode.In(after, joining...) || r == 0x200d && symbol(before) && symbol(after)
	case 0xfe0e, 0xfe0f:
		return symbol(before) || '0' <= before && before <= '9' || before == '#' || before == '*'
	}
	return false
}

func symbol(r rune) bool {
	return unicode.In(r, unicode.So, unicode.Sk) || r == 0xfe0f || r == 0x203c || r == 0x2049
}

// Document returns a document without characters that a terminal would interpret, except
// the ends of lines and tabs.
func Document(s string) string { return visible(s, "\n\t") }

// visible keeps the characters of keep.
func visible(s, keep string) string {
	if Plain(s, keep) {
		return s
	}
	var b strings.Builder
	before, marks := rune(0), 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		after, _ := utf8.DecodeRuneInString(s[i+n:])
		if unicode.In(r, unicode.Mn, unicode.Me) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case marks > maxMarks, Active(r) && !strings.ContainsRune(keep, r) && !joins(before, r, after):
			b.WriteString(Escape(r))
		default:
			b.WriteString(s[i : i+n])
		}
		before = r
		i += n
	}
	return b.String()
}

// Plain reports whether a text is ASCII without control characters but those of keep,
// which is almost always so.
func Plain(s, keep string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || c < 0x20 && strings.IndexByte(keep, c) < 0 {
			return false
		}
	}
	return true
}

// Escape writes a character as JSON does.
func Escape(r rune) string {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Line returns a text as one line of visible text: a name, a title, a message.
// Colours are dropped, the ends of lines are shown.
func Line(s string) string {
	if s = uncolored(s); !Plain(s, "") {
		lines := slices.DeleteFunc(breaks(s), func(line string) bool { return strings.TrimSpace(line) == "" })
		s = visible(strings.ReplaceAll(strings.Join(lines, " "+lineBreak+" "), "\t", " "), "")
	}
	return bounded(s)
}

func bounded(line string) string {
	if len(line) <= maxLine || utf8.RuneCountInString(line) <= maxLine {
		return line
	}
	runes := []rune(line)
	return fmt.Sprintf("%s … (%d more characters)", string(runes[:maxLine]), len(runes)-maxLine)
}

// Block returns a text as lines of visible text, without colours, trailing space
// and empty lines at its ends. Tabs become spaces. The caller indents the lines,
// because the first column is ours.
func Block(s string) []string {
	lines := breaks(uncolored(s))
	for i, line := range lines {
		lines[i] = strings.TrimRight(bounded(visible(untabbed(line), "")), " ")
	}
	empty := func(line string) bool { return line == "" }
	for len(lines) > 0 && empty(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && empty(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// breaks splits at everything that a terminal, or a program that shows what is
// in it, takes for the end of a line.
func breaks(s string) []string { return strings.Split(ends().Replace(s), "\n") }

// ends makes an end of a line a newline. To make it costs more than to use it on a line.
var ends = sync.OnceValue(func() *strings.Replacer {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
})

// untabbed replaces tabs by spaces up to the next of every fourth column.
func untabbed(line string) string {
	for {
		at := strings.IndexByte(line, '\t')
		if at < 0 {
			return line
		}
		line = line[:at] + strings.Repeat(" ", 4-utf8.RuneCountInString(line[:at])%4) + line[at+1:]
	}
}

// uncolored drops the escape sequences that programs write for colours. All
// others become visible: programs do not write them by mistake.
func uncolored(s string) string {
	at := strings.Index(s, "\x1b[")
	if at < 0 {
		return s
	}
	var b strings.Builder
	for at >= 0 {
		b.WriteString(s[:at])
		rest := strings.TrimLeft(s[at+2:], "0123456789;:")
		if rest == "" || rest[0] != 'm' && rest[0] != 'K' {
			b.WriteString(s[at : at+2])
			rest = s[at+2:]
		} else {
			rest = rest[1:]
		}
		s, at = rest, strings.Index(rest, "\x1b[")
	}
	b.WriteString(s)
	return b.String()
}

// FirstLine is the first line of a text, with a sign that there are more. It is not made
// visible.
func FirstLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more {
		line += " …"
	}
	return line
}
