// Package capsule packs the files of an agent's conversation out of its home, and
// unpacks them in the home of the agent that goes on with it.
//
//	home of one attempt ──Pack──▶ bytes ──Unpack──▶ home of the next one
//
// The agent has written all files, and may have written them to mislead us. So Pack
// takes only regular files whose names fit the [Pattern] of an adapter, follows no
// link, never waits, and bounds everything. Unpacked files must fit the same pattern. A
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
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Limits of one capsule.
const (
	MaxBytes = 64 << 20 // of all files
	maxFiles = 64
	maxNames = 2000 // that are examined to find these
)

// ErrNone: a home has no file of the conversation.
var ErrNone = errors.New("there is no file of this conversation")

// A Pattern names the files of conversations in a home, relative to it: "*" in
// an element stands for any part of one name, "{id}" for the conversation's own id,
// and "{id8}" for its first eight characters. Their lines are JSON.
type Pattern string

// A Conversation is one of the conversations in a home.
type Conversation struct {
	Home  string // a directory of the host
	Files Pattern
	ID    string // the agent's id of it
}

var goodID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`) })

// elements are those of the pattern for one conversation. The agent has chosen the id.
func (p Pattern) elements(id string) ([]string, error) {
	if !goodID().MatchString(id) {
		return nil, fmt.Errorf("conversation %.140q: its name may have up to 128 of A-Z, a-z, 0-9, '_' and '-'", id)
	}
	return strings.Split(strings.NewReplacer("{id}", id, "{id8}", id[:min(8, len(id))]).Replace(string(p)), "/"), nil
}

// fits reports whether a name matches the pattern.
func (p Pattern) fits(id, name string) bool {
	elements, err := p.elements(id)
	names := strings.Split(name, "/")
	if err != nil || len(elements) != len(names) || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	for i, e := range elements {
		if ok, err := path.Match(e, names[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

// Pack writes the files of one conversation. It passes each line to clean, and writes
// what clean returns. It omits a line that is incomplete, so it may pack a home that
// its agent still uses. It returns [ErrNone] if there is no such file.
func (c Conversation) Pack(to io.Writer, clean func([]byte) []byte) error {
	elements, err := c.Files.elements(c.ID)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	names, err := find(root, elements)
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
		content, err := read(root, name, left)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		left -= int64(len(content))
		content = cleaned(content, clean)
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
func find(root *os.Root, elements []string) ([]string, error) {
	found, budget := []string{"."}, maxNames
	for i, e := range elements {
		var next []string
		for _, dir := range found {
			names, err := list(root, dir, e, &budget)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				name = path.Join(dir, name)
				info, err := root.Lstat(name)
				if err == nil && (i < len(elements)-1 && info.IsDir() || i == len(elements)-1 && info.Mode().IsRegular()) {
					next = append(next, name)
				}
			}
		}
		if found = next; len(found) > maxFiles {
			return nil, fmt.Errorf("more than %d files or directories fit", maxFiles)
		}
	}
	slices.Sort(found)
	return found, nil
}

// list returns the names in a directory that fit one element.
func list(root *os.Root, dir, element string, budget *int) ([]string, error) {
	if !strings.Contains(element, "*") {
		return []string{element}, nil // no need to list the directory
	}
	d, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(*budget)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if *budget -= len(names); *budget <= 0 {
		return nil, fmt.Errorf("more than %d names in its directories", maxNames)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		ok, err := path.Match(element, name)
		return !ok || err != nil
	}), nil
}

// read reads a regular file up to the size that it had when it was opened.
func read(root *os.Root, name string, limit int64) ([]byte, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	// A FIFO in the file's place must not block this process.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || !os.SameFile(before, info):
		return nil, errors.New("it is no regular file")
	case info.Size() > limit:
		return nil, fmt.Errorf("the conversation is larger than %d bytes", int64(MaxBytes))
	}
	return io.ReadAll(io.LimitReader(f, info.Size()))
}

// cleaned returns the complete lines of a file, each cleaned.
func cleaned(content []byte, clean func([]byte) []byte) []byte {
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var out bytes.Buffer
	out.Grow(len(content))
	for line := range bytes.Lines(content) {
		out.Write(clean(line[:len(line)-1]))
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
