package transcript

import (
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/summary"
	"github.com/penstock-run/penstock/jobs/visible"
)

// diff writes the lines that a change takes away and adds.
func (s *Screen) diff(c summary.Change) error {
	left := len(c.Old) + len(c.New) - diffLines
	old, added := c.Old, c.New
	if left > 1 { // as many of either as fit
		n := max(diffLines-len(added), diffLines/2)
		old = old[:min(len(old), n)]
		added = added[:min(len(added), diffLines-len(old))]
		left = len(c.Old) + len(c.New) - len(old) - len(added)
	} else {
		left = 0
	}
	err := s.sided("-", console.Red, old)
	if err == nil {
		err = s.sided("+", console.Green, added)
	}
	if err == nil && left > 0 {
		err = s.w.Row(console.Span{Style: console.Dim, Text: fmt.Sprintf("    … %d more lines", left)})
	}
	return err
}

func (s *Screen) sided(mark string, style console.Style, lines []string) error {
	for _, line := range lines {
		// Not as a block: that a program writes colours is part of its change.
		text := strings.TrimRight(mark+" "+strings.ReplaceAll(visible.Document(line), "\t", "    "), " ")
		for _, part := range console.Wrap(text, s.room(4)) {
			if err := s.w.Row(console.Span{Style: style, Text: "    " + part}); err != nil {
				return err
			}
		}
	}
	return nil
}
