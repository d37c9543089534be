package agentstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A listing is the list of the files of a tree: a line for each, in the order of their paths.
//
//	d "bin"
//	l "bin/codex" "../node_modules/…"
//	x "node_modules/…/codex" SHA-256     may be executed
//	- "node_modules/…/README.md" SHA-256
type listing struct {
	lines []string
	bytes int64
	files int
}

func (l listing) text() []byte { return []byte(strings.Join(l.lines, "\n") + "\n") }

// list reads all files of a tree.
func list(ctx context.Context, tree string) (l listing, err error) {
	err = filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		rel, _ := filepath.Rel(tree, path) // below it
		if err != nil || rel == "." {
			return err
		}
		line, size, err := describe(path, rel, e)
		l.lines = append(l.lines, line)
		if !e.IsDir() {
			l.files, l.bytes = l.files+1, l.bytes+size
		}
		return err
	})
	return l, err
}

// describe is the line of a file, and its size.
func describe(path, rel string, e fs.DirEntry) (line string, size int64, err error) {
	switch e.Type() {
	case fs.ModeDir:
		return "d " + strconv.Quote(rel), 0, nil
	case fs.ModeSymlink:
		to, err := os.Readlink(path)
		if err == nil && (filepath.IsAbs(to) || !filepath.IsLocal(filepath.Join(filepath.Dir(rel), to))) {
			err = fmt.Errorf("%s leads out of the package, to %s", rel, to)
		}
		return "l " + strconv.Quote(rel) + " " + strconv.Quote(to), 0, err
	case 0:
	default:
		return "", 0, fmt.Errorf("%s is neither a file nor a directory", rel)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	sum := sha256.New()
	if size, err = io.Copy(sum, f); err != nil {
		return "", 0, err
	}
	kind := "-"
	if info.Mode().Perm()&0o111 != 0 {
		kind = "x"
	}
	return kind + " " + strconv.Quote(rel) + " " + hex.EncodeToString(sum.Sum(nil)), size, nil
}

// digest is the SHA-256 of a list.
func digest(list []byte) string {
	sum := sha256.Sum256(list)
	return hex.EncodeToString(sum[:])
}

// identity is the same as long as no file of a tree was changed, added or removed: it is made
// of their metadata, of which no program but the kernel can set the time of the last change.
func identity(tree string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		fmt.Fprintf(sum, "%q %d %d %o %d %d %d\n", path, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// Verify reads all files of a version. It returns a [*ChangedError] if one is not what was
// installed; then the version is not among [Store.Versions] until it is installed anew.
func (s *Store) Verify(ctx context.Context, i Installed) error {
	err := verify(ctx, i)
	if _, changed := errors.AsType[*ChangedError](err); changed {
		s.setBroken(i.dir)
	}
	return err
}

func verify(ctx context.Context, i Installed) error {
	changed := &ChangedError{Package: i.Package, Version: i.Version}
	want, err := os.ReadFile(filepath.Join(i.dir, listName))
	if errors.Is(err, fs.ErrNotExist) {
		changed.What = "is not there"
		return changed
	}
	if err != nil {
		return err
	}
	if digest(want) != i.Digest {
		changed.What = "does not have its digest"
		return changed
	}
	got, err := list(ctx, i.Tree())
	if err != nil && ctx.Err() == nil {
		changed.Path, changed.What = treeName, "cannot be read: "+err.Error()
		return changed
	}
	if err != nil || bytes.Equal(got.text(), want) {
		return err
	}
	changed.Path, changed.What = difference(strings.Split(strings.TrimSuffix(string(want), "\n"), "\n"), got.lines)
	return changed
}

// difference names the first file that two lists tell apart.
func difference(want, got []string) (path, what string) {
	now, known := map[string]string{}, map[string]bool{}
	for _, line := range got {
		now[pathOf(line)] = line
	}
	for _, line := range want {
		path := pathOf(line)
		known[path] = true
		switch there, found := now[path]; {
		case !found:
			return path, "is not there"
		case there != line:
			return path, "has changed"
		}
	}
	for _, line := range got {
		if path := pathOf(line); !known[path] {
			return path, "is new"
		}
	}
	return "", "has another order"
}

// pathOf is the path in a line of a list.
func pathOf(line string) string {
	quoted, err := strconv.QuotedPrefix(line[min(2, len(line)):])
	if err != nil {
		return line
	}
	path, _ := strconv.Unquote(quoted) // a prefix that is quoted can be unquoted
	return path
}
