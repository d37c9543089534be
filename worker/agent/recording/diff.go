package recording

import (
	"fmt"
	"strings"
)

// around is how many lines that are the same a difference shows before and after.
const around = 2

// Diff shows in which lines two texts differ, as diff -u does; empty: they are the same. Long
// lines are cut to what is around their first difference.
func Diff(was, is string) string {
	if was == is {
		return ""
	}
	edits := compare(strings.Split(was, "\n"), strings.Split(is, "\n"))
	near := make([]bool, len(edits))
	for i, e := range edits {
		for j := max(0, i-around); e.mark != ' ' && j <= min(len(edits)-1, i+around); j++ {
			near[j] = true
		}
	}
	var b strings.Builder
	for i, e := range edits {
		switch {
		case near[i] && i > 0 && !near[i-1], near[i] && i == 0:
			fmt.Fprintf(&b, "@@ line %d\n", e.line)
			fallthrough
		case near[i]:
			fmt.Fprintf(&b, "%c %s\n", e.mark, pared(edits, i))
		}
	}
	return b.String()
}

// An edit is a line that both texts have (' '), or one of them ('-', '+').
type edit struct {
	mark byte
	text string
	line int // of the first text, from 1
}

// compare finds the longest sequence of lines that both have.
func compare(a, b []string) []edit {
	same := make([][]int, len(a)+1) // how many lines the rests from i and j have in common
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			same[i][j] = max(same[i+1][j], same[i][j+1])
			if a[i] == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	var edits []edit
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			edits = append(edits, edit{' ', a[i], i + 1})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && same[i+1][j] >= same[i][j+1]:
			edits = append(edits, edit{'-', a[i], i + 1})
			i++
		default:
			edits = append(edits, edit{'+', b[j], i + 1})
			j++
		}
	}
	return edits
}

// width is how much of a line a difference shows.
const width = 200

// pared is the text of an edit, cut to what is around the difference from the line that it
// replaces, or that replaces it.
func pared(edits []edit, i int) string {
	e, from := edits[i], 0
	if len(e.text) <= width {
		return e.text
	}
	for _, j := range []int{i - 1, i + 1} {
		if j >= 0 && j < len(edits) && e.mark != ' ' && edits[j].mark != ' ' && edits[j].mark != e.mark {
			for from < min(len(e.text), len(edits[j].text)) && e.text[from] == edits[j].text[from] {
				from++
			}
			break
		}
	}
	from = max(0, min(from-width/4, len(e.text)-width))
	cut := e.text[from:min(len(e.text), from+width)]
	if from > 0 {
		cut = "…" + cut
	}
	return strings.ToValidUTF8(cut, "") + "…"
}
