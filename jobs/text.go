package jobs

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// pattern compiles a pattern when it is first asked for. The first program of
// every jail is this one, started again: what each start computes for nothing
// is paid for by each job.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func itoa(n int) string { return strconv.Itoa(n) }

// oneLine returns the first line of s that has text, without control
// characters, cut at limit bytes on a character's edge.
func oneLine(s string, limit int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, line)
	if len(line) <= limit {
		return line
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(line[cut]) {
		cut--
	}
	return line[:cut] + "…"
}
