package catalog

import (
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Bounds of listings.
const (
	listingKept  = 30 * time.Second
	listingsMost = 8
)

// listings keep lists whose first pages were read without a leader: that means reading all
// records, and a client that asks for the next page does so at once. Another process, or
// this one later, reads them again.
type listings struct {
	mu   sync.Mutex
	kept map[listQuestion]listing
}

type listing struct {
	jobs []jobs.Record
	at   time.Time
}

func newListings() *listings { return &listings{kept: map[listQuestion]listing{}} }

// key is what all pages of one list have in common.
func (s Selection) key() listQuestion {
	s.After, s.Limit = "", 0
	return *s.question()
}

// get returns the list that a selection goes on with, if that is known. A first page is
// always read.
func (l *listings) get(s Selection) ([]jobs.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.kept[s.key()]
	return found.jobs, ok && s.After != "" && time.Since(found.at) < listingKept
}

// put keeps a list for the selections of its next pages.
func (l *listings) put(s Selection, list []jobs.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, old := range l.kept {
		if time.Since(old.at) >= listingKept || len(l.kept) >= listingsMost {
			delete(l.kept, key)
		}
	}
	l.kept[s.key()] = listing{list, time.Now()}
}
