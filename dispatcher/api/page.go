package api

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// after returns what comes behind a name in a list that is sorted by it.
func after[T any](list []T, name string, of func(T) string) []T {
	if name == "" {
		return list
	}
	at := slices.IndexFunc(list, func(v T) bool { return of(v) > name })
	if at < 0 {
		return nil
	}
	return list[at:]
}

// A mark is where an entry stands in a list that is sorted by a number and, where that
// is the same, by name.
type mark struct {
	name string
	at   int64
}

// cursor returns the mark as clients send it back.
func (m mark) cursor() string { return m.name + " " + strconv.FormatInt(m.at, 10) }

// afterMark returns what comes behind a cursor. The entry that it was made of may be
// gone, since a client may remove what it has listed: then its number says where to go
// on.
func afterMark[T any](list []T, cursor string, of func(T) mark) []T {
	if cursor == "" {
		return list
	}
	name, number, _ := strings.Cut(cursor, " ")
	if at := slices.IndexFunc(list, func(v T) bool { return of(v).name == name }); at >= 0 {
		return list[at+1:]
	}
	last, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return list // a name alone, of which nothing is there
	}
	at := slices.IndexFunc(list, func(v T) bool {
		m := of(v)
		return cmp.Or(cmp.Compare(m.at, last), cmp.Compare(m.name, name)) > 0
	})
	if at < 0 {
		return nil
	}
	return list[at:]
}

// page returns as much of the beginning of a list as was asked for and fits an
// answer, and whether more is left. One entry is always in it: if that is too
// large, the answer says so.
func page[T any](list []T, limit, room int) ([]T, bool, error) {
	if limit <= 0 || limit > operation.MaxPage {
		limit = operation.MaxPage
	}
	size := 1 << 10 // the rest of the answer
	for i, v := range list {
		body, err := json.Marshal(v)
		if err != nil {
			return nil, false, err
		}
		if size += len(body) + 1; i > 0 && (i >= limit || size > room) {
			return list[:i], true, nil
		}
	}
	if list == nil {
		list = []T{}
	}
	return list, false, nil
}

// Bounds of listings.
const (
	listingKept  = 30 * time.Second
	listingsMost = 8
)

// listings keep the rest of lists whose first pages were sent: listing jobs means
// reading all of them, and a client that asks for the next page does so at once.
// Another dispatcher, or this one later, reads them again.
type listings struct {
	mu   sync.Mutex
	left map[operation.ListRequest]listing
}

type listing struct {
	jobs []jobs.Record
	at   time.Time
}

func newListings() *listings { return &listings{left: map[operation.ListRequest]listing{}} }

// take returns what is left for a request, if that is known.
func (l *listings) take(r operation.ListRequest) ([]jobs.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.left[r]
	delete(l.left, r)
	return found.jobs, ok && time.Since(found.at) < listingKept
}

// put keeps what is left for the request that asks for the next page.
func (l *listings) put(r operation.ListRequest, left []jobs.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, old := range l.left {
		if time.Since(old.at) >= listingKept || len(l.left) >= listingsMost {
			delete(l.left, key)
		}
	}
	l.left[r] = listing{left, time.Now()}
}
