package disk

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable writes a path that an agent chose so that it is harmless in a
// terminal and in JSON: as it is, or quoted if it has anything unusual.
func Printable(p string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '"' || r == '\\' }
	if utf8.ValidString(p) && !strings.ContainsFunc(p, odd) {
		return p
	}
	return strconv.QuoteToASCII(p)
}

// Shorten cuts a path that is too long to be shown.
func Shorten(p string) string {
	if len(p) > 100 {
		return p[:100] + "…"
	}
	return p
}
