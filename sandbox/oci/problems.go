package oci

import (
	"fmt"
	"strings"
)

// A Problem is something for which a jail cannot be made, and what its user
// can do about it.
type Problem struct {
	Check   string `json:"check"` // a stable word: "engine", "image", "program"
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"` // a command or an advice; "" where there is none
}

func (p Problem) String() string {
	if p.Fix == "" {
		return p.Check + ": " + p.Message
	}
	return p.Check + ": " + p.Message + " (to do: " + p.Fix + ")"
}

// A PreconditionError reports everything that was found missing before a jail
// was begun. Nothing was started.
type PreconditionError struct{ Problems []Problem }

// ImageMissing reports whether the image is all that was found missing: the host
// can make containers, but not of this one.
func (e *PreconditionError) ImageMissing() bool {
	for _, p := range e.Problems {
		if p.Check != "image" && p.Check != "architecture" {
			return false
		}
	}
	return len(e.Problems) > 0
}

func (e *PreconditionError) Error() string {
	said := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		said[i] = p.String()
	}
	if len(said) == 1 {
		return said[0]
	}
	return fmt.Sprintf("%d things are missing: %s", len(said), strings.Join(said, "; "))
}
