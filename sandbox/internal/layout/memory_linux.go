package layout

import (
	"io/fs"
	"os"
	"sync"
)

// A memory has what was read of the host's files, which is read again of one that has changed. What
// it returns is shared by all jails, and must not be changed.
type memory[V any] struct {
	of func(path string) (V, error)

	mu    sync.Mutex
	known map[string]known[V] // guarded by mu; by path
}

// known is what was read of a file, and the file as it was then.
type known[V any] struct {
	file  fs.FileInfo
	value V
}

// read returns what there is of those of the files that are there and can be read.
func (m *memory[V]) read(paths []string) []V {
	var all []V
	for _, path := range paths {
		file, err := os.Stat(path)
		if err != nil {
			continue
		}
		k, ok := m.recall(path)
		if !ok || !os.SameFile(k.file, file) || k.file.Size() != file.Size() || !k.file.ModTime().Equal(file.ModTime()) {
			value, err := m.of(path)
			if err != nil {
				continue
			}
			k = known[V]{file, value}
			m.remember(path, k)
		}
		all = append(all, k.value)
	}
	return all
}

func (m *memory[V]) recall(path string) (known[V], bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.known[path]
	return k, ok
}

func (m *memory[V]) remember(path string, k known[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]known[V]{}
	}
	m.known[path] = k
}
