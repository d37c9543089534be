package workspace

import (
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// A catalog is the files of a commit, sorted by path.
type catalog []git.Entry

// find returns the place of a file.
func (c catalog) find(p string) (int, bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].Path >= p })
	return i, i < len(c) && c[i].Path == p
}

// has reports whether there is such a file.
func (c catalog) has(p string) bool {
	_, found := c.find(p)
	return found
}

// below returns the files in a directory and in those in it; of all for "".
func (c catalog) below(dir string) catalog {
	if dir == "" {
		return c
	}
	dir += "/"
	from := sort.Search(len(c), func(i int) bool { return c[i].Path >= dir })
	to := from + sort.Search(len(c)-from, func(i int) bool { return !strings.HasPrefix(c[from+i].Path, dir) })
	return c[from:to]
}

// attributes returns the .gitattributes, which decide how others are stored.
func (c catalog) attributes() []git.Entry {
	var found []git.Entry
	for _, e := range c {
		if path.Base(e.Path) == ".gitattributes" {
			found = append(found, e)
		}
	}
	return found
}

// catalogs keeps those that were used last. Reading one costs what the
// repository is large.
type catalogs struct {
	mu   sync.Mutex
	last []*entryList
}

type entryList struct {
	index string
	files catalog
}

const keptCatalogs = 4

func (c *catalogs) get(index string) (catalog, error) {
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
	if len(c.last) == keptCatalogs {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, &entryList{index, files})
	return files, nil
}
