package input

import (
	"fmt"
	"slices"
	"strings"
)

// A Choice is a flag that takes one of a few words.
type Choice struct {
	to    *string
	Words []string
}

// OneOf returns a flag that puts one of these words where to points.
func OneOf(to *string, words ...string) *Choice { return &Choice{to, words} }

// String returns the word that is chosen; empty where none is.
func (c *Choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Type names the flag's value in help texts.
func (c *Choice) Type() string { return "word" }

// Set takes one of the words, or nothing.
func (c *Choice) Set(word string) error {
	if word != "" && !slices.Contains(c.Words, word) {
		return NotOneOf(word, c.Words)
	}
	*c.to = word
	return nil
}

// NotOneOf refuses a word, and suggests the one that was probably meant.
func NotOneOf(word string, words []string) error {
	meant := ""
	if like := Like(word, words); like != "" {
		meant = fmt.Sprintf("; did you mean %s?", like)
	}
	return fmt.Errorf("%q is not allowed; use %s%s", word, List(words), meant)
}

// List writes words as a person does: "a, b or c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Like returns the word that was probably meant: one that differs by few letters, or
// that begins with the input. It is empty if there is none, or several.
func Like(word string, words []string) string {
	const most = 2
	best, least, several := "", most+1, false
	word = strings.ToLower(word)
	for _, w := range words {
		d := distance(word, strings.ToLower(w))
		if len(word) >= 3 && strings.HasPrefix(strings.ToLower(w), word) {
			d = min(d, 1)
		}
		if d > max(len(w)/3, 1) {
			continue
		}
		several = several && d >= least || d == least && best != ""
		if d < least {
			best, least, several = w, d, false
		}
	}
	if several {
		return ""
	}
	return best
}

// distance counts the letters to add, to take away, to change, or to swap with
// their neighbour, that make one word of the other.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}

// Strings returns words of a type of their own as those that a flag takes.
func Strings[T ~string](words ...T) []string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return list
}
