package jobs

import (
	"fmt"
	"strings"
)

// An Overlap says that another job of the same repository changes files that a job changes, too.
type Overlap struct {
	Job   string   `json:"job" jsonschema:"The other job's id."`
	Files []string `json:"files" jsonschema:"The files that both change, at most ten."`
	More  int      `json:"more,omitempty" jsonschema:"How many files more both change."`
	// Lines are no files of their own: each stands in Files, too.
	Lines []string `json:"lines,omitempty" jsonschema:"Those of the files in which both change the same lines, or lines beside each other."`
	// Apart: the lines were not compared.
	Apart bool `json:"apart,omitempty" jsonschema:"The jobs began from different commits, so their lines cannot be compared."`
}

// String says it in a sentence, without its end.
func (o Overlap) String() string {
	text := fmt.Sprintf("job %s changes the same files: %s", o.Job, strings.Join(o.Files, ", "))
	if o.More > 0 {
		text += fmt.Sprintf(" and %d more", o.More)
	}
	switch {
	case len(o.Lines) > 0:
		text += "; the same lines, or lines beside them, of " + strings.Join(o.Lines, ", ")
	case o.Apart:
		text += "; it began from another commit, so lines were not compared"
	default:
		text += "; other lines"
	}
	return text
}
