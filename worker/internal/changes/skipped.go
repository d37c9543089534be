package changes

import (
	"fmt"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// skipped collects paths with a reason, up to a bound: an agent may leave any
// number of them.
type skipped struct {
	lines []string
	more  int
}

const maxSkipped = 100

func (s *skipped) add(p, why string) { s.note(disk.Printable(disk.Shorten(p)) + ": " + why) }

func (s *skipped) note(line string) {
	if len(s.lines) == maxSkipped {
		s.more++
		return
	}
	s.lines = append(s.lines, line)
}

func (s *skipped) list() []string {
	if s.more > 0 {
		return append(s.lines, fmt.Sprintf("and %d more", s.more))
	}
	return s.lines
}
