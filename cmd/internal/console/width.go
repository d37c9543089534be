package console

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// Wrap cuts a visible line into parts of at most width columns, between words
// where it can, so that the terminal does not do it: its next line would begin in
// the first column, which is ours.
func Wrap(line string, width int) []string {
	if width <= 0 || runewidth.StringWidth(line) <= width {
		return []string{line}
	}
	var parts []string
	for runewidth.StringWidth(line) > width {
		part := runewidth.Truncate(line, width, "")
		if part == "" {
			_, part = "", string([]rune(line)[:1])
		}
		if at := strings.LastIndexByte(part, ' '); at > len(part)/3 && line[len(part)] != ' ' {
			part = part[:at]
		}
		parts = append(parts, strings.TrimRight(part, " "))
		line = strings.TrimLeft(line[len(part):], " ")
	}
	if line != "" {
		parts = append(parts, line)
	}
	return parts
}

// Cut shortens a visible line to width columns.
func Cut(line string, width int) string {
	if width <= 0 {
		return line
	}
	return runewidth.Truncate(line, width, "…")
}

// Pad fills a visible line up to width columns.
func Pad(line string, width int) string { return runewidth.FillRight(line, width) }

// Columns is how many columns a visible line takes.
func Columns(line string) int { return runewidth.StringWidth(line) }
