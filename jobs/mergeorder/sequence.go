package mergeorder

import (
	"fmt"
	"strings"
)

// State is what comes of a merge.
type State string

// The states of a merge.
const (
	Merges   State = "merges"
	Conflict State = "conflict"
	Untried  State = "untried"
)

// A Turn is a result in the order in which results should be merged.
type Turn struct {
	Item          string   `json:"item" jsonschema:"The item."`
	Job           string   `json:"job" jsonschema:"Its job's id."`
	State         State    `json:"state" jsonschema:"merges, conflict if it conflicts with results before it, or untried."`
	With          []string `json:"with,omitempty" jsonschema:"The items before it that it conflicts with."`
	Conflicts     []string `json:"conflicts,omitempty" jsonschema:"The first 20 files with conflicts."`
	MoreConflicts int      `json:"more_conflicts,omitempty" jsonschema:"How many more there are."`
	Why           string   `json:"why,omitempty" jsonschema:"Why it was not tried."`
}

// Others names the items that a result conflicts with.
func (t Turn) Others() string { return strings.Join(t.With, ", ") }

// Stops names the first files at which the merge stops, and counts the others.
func (t Turn) Stops() string { return WithMore(t.Conflicts, t.MoreConflicts) }

// WithMore lists names for people, and counts those that are not among them.
func WithMore(names []string, more int) string {
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// A Sequence is results in the order in which the fewest stop at a conflict. Its JSON is
// documented.
type Sequence struct {
	Merge   int    `json:"merge" jsonschema:"How many results merge one after the other."`
	Stop    int    `json:"stop" jsonschema:"How many conflict with one before them."`
	Untried int    `json:"untried" jsonschema:"How many were not tried."`
	Fewest  bool   `json:"fewest" jsonschema:"Whether no order has fewer conflicts."`
	Order   []Turn `json:"order" jsonschema:"The results in their order: those that merge come first."`
}

// Add adds the next result.
func (s *Sequence) Add(t Turn) {
	switch t.State {
	case Merges:
		s.Merge++
	case Conflict:
		s.Stop++
	default:
		s.Untried++
	}
	s.Order = append(s.Order, t)
}

// Counts says how many results merge.
func (s Sequence) Counts() string {
	said := fmt.Sprintf("%d of %d results merge one after the other", s.Merge, s.Merge+s.Stop+s.Untried)
	if s.Stop > 0 {
		said += fmt.Sprintf(", %d conflict with those before them", s.Stop)
	}
	if s.Untried > 0 {
		said += fmt.Sprintf(", %d were not tried", s.Untried)
	}
	if s.Fewest && s.Stop > 0 {
		said += "; no order has fewer conflicts"
	}
	return said
}
