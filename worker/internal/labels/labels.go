// Package labels knows the labels of a worker: those of its settings, and those for the versions
// of agents that are installed on its host.
package labels

import (
	"context"
	"slices"
	"sync"
	"time"
)

// every is how often Watch looks. That only reads the names in a few directories.
const every = 2 * time.Second

// Labels are those of a worker.
type Labels struct {
	fixed     []string
	installed func() []string

	mu  sync.Mutex
	now []string
}

// New returns the labels of the settings; installed returns the others, which may change.
func New(fixed []string, installed func() []string) *Labels {
	return &Labels{fixed: fixed, now: fixed, installed: installed}
}

// All returns the labels as of the last look.
func (l *Labels) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Look reads which versions are installed, and reports whether the labels have changed.
func (l *Labels) Look() (changed bool) {
	now := slices.Clone(l.fixed)
	for _, label := range l.installed() {
		if !slices.Contains(now, label) {
			now = append(now, label)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = !slices.Equal(l.now, now)
	l.now = now
	return changed
}

// Watch looks until ctx ends, and calls changed after each change.
func (l *Labels) Watch(ctx context.Context, changed func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if l.Look() {
				changed()
			}
		}
	}
}
