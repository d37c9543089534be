// Package capsule packs the files of an agent's conversation out of its home, and
// unpacks them in the home of the agent that goes on with it.
//
//	home of one attempt ──Pack──▶ bytes ──Unpack──▶ home of the next one
//
// The agent has written all files, and may have written them to mislead us. So Pack
// takes only regular files whose names fit the [Files] of an adapter, follows no
// link, never waits, and bounds everything. Unpacked files must fit the same names. A
// home is for a jail: no program of the host reads anything in it.
package capsule

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/worker/capsule/internal/sqlite"
)

// Limits of one capsule.
const (
	MaxBytes = 64 << 20 // of all files
	maxFiles = 512
	maxNames = 2000 // that are examined to find these
)

// ErrNone: a home has no file of the conversation.
var ErrNone = errors.New("there is no file of this conversation")

// A Conversation is one of the conversations in a home.
type Conversation struct {
	Home  string // a directory of the host
	Files Files
	ID    string // the agent's id of it
}

// A Cleaner removes secrets.
type Cleaner interface {
	// Line returns a line, or a whole file, without them.
	Line(line []byte) []byte
	// Mask returns as many bytes as it gets, with other bytes in their place.
	Mask(value []byte) []byte
}

// Pack writes the files of one conversation. Each line goes through clean. Of a file of JSON
// lines it omits a line that is incomplete, so it may pack a home that its agent still uses. An
// SQLite database becomes one file with what its last transaction has left, in which each row goes
// through clean; see package sqlite. Any other file is cleaned as a whole. Pack returns [ErrNone] if
// there is no such file.
func (c Conversation) Pack(to io.Writer, clean Cleaner) error {
	if err := checkID(c.ID); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := c.find(root)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return ErrNone
	}
	squeezed := gzip.NewWriter(to)
	archive := tar.NewWriter(squeezed)
	left := int64(MaxBytes)
	for _, name := range names {
		if slices.ContainsFunc(besides, func(end string) bool { return beside(root, name, end) }) {
			continue
		}
		content, err := packed(root, name, left, clean)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		left -= int64(len(content))
		// Without times and owners, the same files give the same bytes.
		h := &tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), squeezed.Close())
}

// find lists the regular files that fit, in order.
func (c Conversation) find(root *os.Root) ([]string, error) {
	s := search{root: root, budget: maxNames, skip: func(dir string) bool { return c.Files.without(c.ID, dir) }}
	var found []string
	for _, p := range c.Files.Paths {
		more, err := s.fitting(p.elements(c.ID))
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	slices.Sort(found)
	found = slices.DeleteFunc(slices.Compact(found), func(name string) bool { return !c.Files.fits(c.ID, name) })
	if len(found) > maxFiles {
		return nil, fmt.Errorf("more than %d files or directories fit", maxFiles)
	}
	return found, nil
}

// A search looks for files in a home, and at no more names than its budget.
type search struct {
	root   *os.Root
	budget int
	skip   func(dir string) bool // all that is below it is left out
}

func (s *search) fitting(elements []string) ([]string, error) {
	found := []string{"."}
	for i, e := range elements {
		if e == below {
			return s.allBelow(found)
		}
		last := i == len(elements)-1
		var next []string
		for _, dir := range found {
			names, err := s.list(dir, e)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				name = path.Join(dir, name)
				info, err := s.root.Lstat(name)
				if err == nil && (!last && info.IsDir() || last && info.Mode().IsRegular()) {
					next = append(next, name)
				}
			}
		}
		if found = next; len(found) > maxFiles {
			return nil, fmt.Errorf("more than %d files or directories fit", maxFiles)
		}
	}
	return found, nil
}

// allBelow lists the regular files in directories and in all directories below those.
func (s *search) allBelow(dirs []string) (found []string, err error) {
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		names, err := s.list(dir, "*")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			name = path.Join(dir, name)
			info, err := s.root.Lstat(name)
			switch {
			case err != nil: // it was removed meanwhile
			case info.IsDir() && s.skip(name):
			case info.IsDir():
				dirs = append(dirs, name)
			case info.Mode().IsRegular():
				found = append(found, name)
			}
		}
	}
	return found, nil
}

// list returns the names in a directory that fit one element.
func (s *search) list(dir, element string) ([]string, error) {
	if !strings.Contains(element, "*") {
		return []string{element}, nil // no need to list the directory
	}
	d, err := s.root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(s.budget)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if s.budget -= len(names); s.budget <= 0 {
		return nil, fmt.Errorf("more than %d names in its directories", maxNames)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		ok, err := path.Match(element, name)
		return !ok || err != nil
	}), nil
}

// open opens a regular file. Close it.
func open(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	// A FIFO in the file's place must not block this process.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(before, info)) {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// read reads a regular file up to the size that it had when it was opened.
func read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, info, err := open(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, fmt.Errorf("the conversation is larger than %d bytes", int64(MaxBytes))
	}
	// At once, because an agent may write meanwhile.
	content := make([]byte, info.Size())
	n, err := io.ReadFull(f, content)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) { // it is shorter by now
		err = nil
	}
	return content[:n], err
}

// packed is what a capsule has of a file.
func packed(root *os.Root, name string, limit int64, clean Cleaner) ([]byte, error) {
	content, err := read(root, name, limit)
	switch {
	case err != nil:
		return nil, err
	case path.Ext(name) == ".jsonl":
		return lines(content, clean), nil
	case sqlite.Is(content):
		return database(root, name, limit, clean)
	}
	return clean.Line(content), nil
}

// lines are the complete lines of a file of lines.
func lines(content []byte, clean Cleaner) []byte {
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var out bytes.Buffer
	out.Grow(len(content))
	for line := range bytes.Lines(content) {
		out.Write(clean.Line(line[:len(line)-1]))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Unpack writes the files of a conversation into a home that has no file of it yet.
// Anything that Pack would not write is an error, and then the home must not be used.
func (c Conversation) Unpack(from io.Reader) error {
	squeezed, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("it is no capsule: %w", err)
	}
	root, err := os.OpenRoot(c.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(io.LimitReader(squeezed, MaxBytes+(maxFiles+1)<<12))
	for n := 0; ; n++ {
		h, err := archive.Next()
		switch {
		case err == io.EOF && n > 0:
			return nil
		case err != nil:
			return fmt.Errorf("it is no capsule: %w", err)
		case n == maxFiles || h.Typeflag != tar.TypeReg || !c.Files.fits(c.ID, h.Name):
			return fmt.Errorf("it has what does not belong there: %.200q", h.Name)
		}
		if err := write(root, h.Name, archive); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func write(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
