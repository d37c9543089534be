package changes

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A stage holds the host's copies of the files that an agent changed. Git reads these
// and never the originals.
type stage struct {
	dir   string
	root  *os.Root
	paths []string // to be added as git adds files, with the base's conversions
	raw   []rawFile
	// deleted are paths that the agent removed.
	deleted []string
	// moved are files of the base at a new path, as they were.
	moved []git.Entry
}

// A rawFile is a .gitattributes. Git would obey it in its own place, so its content is
// stored elsewhere, and added unconverted after all other files.
type rawFile struct {
	path string
	mode uint32
}

func newStage(dir string) (*stage, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"files", "raw"} {
		if err := root.Mkdir(sub, 0o700); err != nil {
			root.Close()
			return nil, err
		}
	}
	return &stage{dir: dir, root: root}, nil
}

func (s *stage) files() string { return filepath.Join(s.dir, "files") }

// file copies size bytes, and not one more if the file grows meanwhile.
func (s *stage) file(p string, from io.Reader, size int64, executable bool) error {
	mode := os.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	to := path.Join("files", p)
	if path.Base(p) == ".gitattributes" {
		to = s.apart(p, fileMode(executable))
	} else {
		s.paths = append(s.paths, p)
		if err := s.root.MkdirAll(path.Dir(to), 0o700); err != nil {
			return fmt.Errorf("stage %s: %w", disk.Printable(p), err)
		}
	}
	f, err := s.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("stage %s: %w", disk.Printable(p), err)
	}
	_, err = io.Copy(f, io.LimitReader(from, size))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("stage %s: %w", disk.Printable(p), err)
	}
	return nil
}

// link makes the same link; git reads its target as text and does not follow it.
func (s *stage) link(p, target string) error {
	if path.Base(p) == ".gitattributes" {
		return s.root.WriteFile(s.apart(p, git.ModeLink), []byte(target), 0o600)
	}
	to := path.Join("files", p)
	if err := s.root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return fmt.Errorf("stage %s: %w", disk.Printable(p), err)
	}
	if err := s.root.Symlink(target, to); err != nil {
		return fmt.Errorf("stage %s: %w", disk.Printable(p), err)
	}
	s.paths = append(s.paths, p)
	return nil
}

// apart is the path for a raw file's content.
func (s *stage) apart(p string, mode uint32) string {
	s.raw = append(s.raw, rawFile{p, mode})
	return fmt.Sprintf("raw/%d", len(s.raw)-1)
}

func (s *stage) changed() bool { return len(s.paths)+len(s.raw)+len(s.deleted)+len(s.moved) > 0 }

func (s *stage) close() error { return s.root.Close() }
