package workspace

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// display writes a path that an agent chose so that it is harmless in a
// terminal and in JSON: as it is, or quoted if it has anything unusual.
func display(p string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '"' || r == '\\' }
	if utf8.ValidString(p) && !strings.ContainsFunc(p, odd) {
		return p
	}
	return strconv.QuoteToASCII(p)
}
