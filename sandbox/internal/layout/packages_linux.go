package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"sync"
)

// installed are the files in which package managers keep what is in /usr: of Debian and its
// kin, of RPM at either of its places, and of Alpine.
var installed = lists{paths: []string{
	"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/lib/apk/db/installed",
}}

// Lists are files by their digests, which are computed again for one that has changed: a list
// of packages is some megabytes, and a jail starts in ten milliseconds.
type lists struct {
	paths []string

	mu    sync.Mutex
	known map[string]known // guarded by mu; by path
}

// known is a list as it was read.
type known struct {
	file   fs.FileInfo
	digest Digest
}

// read returns the digests of the lists that are there and can be read.
func (l *lists) read() []Digest {
	var all []Digest
	for _, path := range l.paths {
		file, err := os.Stat(path)
		if err != nil {
			continue
		}
		k, ok := l.recall(path)
		if !ok || !os.SameFile(k.file, file) || k.file.Size() != file.Size() || !k.file.ModTime().Equal(file.ModTime()) {
			sum, err := digest(path)
			if err != nil {
				continue
			}
			k = known{file, Digest{path, sum}}
			l.remember(path, k)
		}
		all = append(all, k.digest)
	}
	return all
}

func (l *lists) recall(path string) (known, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.known[path]
	return k, ok
}

func (l *lists) remember(path string, k known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]known{}
	}
	l.known[path] = k
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}
