package git

import (
	"sort"
	"strings"
)

// A Listing is the files of a commit, sorted by path.
type Listing []Entry

// Find returns the index of a file.
func (l Listing) Find(p string) (int, bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i].Path >= p })
	return i, i < len(l) && l[i].Path == p
}

// Has reports whether there is such a file.
func (l Listing) Has(p string) bool {
	_, found := l.Find(p)
	return found
}

// Below returns the files in a directory and its subdirectories; "" means all.
func (l Listing) Below(dir string) Listing {
	if dir == "" {
		return l
	}
	dir += "/"
	from := sort.Search(len(l), func(i int) bool { return l[i].Path >= dir })
	to := from + sort.Search(len(l)-from, func(i int) bool { return !strings.HasPrefix(l[from+i].Path, dir) })
	return l[from:to]
}

// Attributes returns the .gitattributes files, which decide how other files are stored.
func (l Listing) Attributes() []Entry {
	var found []Entry
	for _, e := range l {
		if e.Path == ".gitattributes" || strings.HasSuffix(e.Path, "/.gitattributes") {
			found = append(found, e)
		}
	}
	return found
}

// DiffTree is a command that compares two trees file by file, as they are stored.
func DiffTree(args ...string) []string {
	return append([]string{"diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}, args...)
}
