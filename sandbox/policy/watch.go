package policy

import "sync"

// MaxWatch is how many violations of one jail are kept of each kind. A program
// can be refused without end, and must push neither those of others out of the
// store, nor its own out of sight.
const MaxWatch = 100

// A Watch notes what one jail was refused: the same thing once, and no more
// than MaxWatch things of a kind. Its methods may be called from any goroutine.
type Watch struct {
	label string
	keep  func(Violation)

	mu    sync.Mutex
	seen  map[Violation]bool // guarded by mu
	kinds map[string]int     // how many of each; guarded by mu
}

// NewWatch returns the watch of the jail with that label. keep gets each
// new violation, from any reporter.
func NewWatch(label string, keep func(Violation)) *Watch {
	return &Watch{label: label, keep: keep, seen: map[Violation]bool{}, kinds: map[string]int{}}
}

// Note records that the jail did not get what it wanted.
func (w *Watch) Note(kind, what, reason string) {
	w.Add(Violation{Kind: kind, What: what, Reason: reason})
}

// Add is Note for a violation with more fields.
func (w *Watch) Add(v Violation) {
	v.Label, v.What, v.Reason = w.label, shorten(v.What), shorten(v.Reason)
	if w.first(v) {
		w.keep(v)
	}
}

// Count returns how many different things were noted.
func (w *Watch) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

func (w *Watch) first(v Violation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[v] || w.kinds[v.Kind] >= MaxWatch {
		return false
	}
	w.seen[v] = true
	w.kinds[v.Kind]++
	return true
}
