package repocache

import (
	"slices"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// listings keeps the most recently used ones. Reading one costs time in proportion to
// the repository.
type listings struct {
	mu   sync.Mutex
	last []*entryList
}

type entryList struct {
	index string
	files git.Listing
}

const keptListings = 4

func (c *listings) get(index string) (git.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.last, func(l *entryList) bool { return l.index == index }); i >= 0 {
		found := c.last[i]
		c.last = append(slices.Delete(c.last, i, i+1), found)
		return found.files, nil
	}
	files, _, err := git.ReadIndex(index)
	if err != nil {
		return nil, err
	}
	if len(c.last) == keptListings {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, &entryList{index, files})
	return files, nil
}
