package patchstat

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of what is kept of one patch. Lines are counted to the end in any case.
const (
	maxStatFiles = 5000
	maxSpans     = 500
	maxPatchPath = 4096
)

// A Stat counts what a patch changes.
type Stat struct {
	Files          []File
	Added, Removed int
	// More counts the files beyond those that are listed.
	More int
}

// A File counts what a patch changes in one file.
type File struct {
	Path           string
	From           string // the old path, where the file was renamed or copied
	Added, Removed int
	New, Deleted   bool
	Binary         bool
	Mode           string // the new mode, where the patch sets one
	// Spans are the lines of the base that are removed, and where lines are inserted;
	// Whole says that they are incomplete.
	Spans []Span
	Whole bool
}

// A Span is lines Begin to End-1 of a file. Where they are equal, something
// is inserted before Begin.
type Span struct{ Begin, End int }

// Read reads a patch as git writes it. It counts a damaged patch as far as it can be
// read: only a failure of reading itself is an error.
func Read(r io.Reader) (Stat, error) {
	p := patchReader{in: bufio.NewReaderSize(r, 64<<10)}
	for {
		text, err := p.line()
		if errors.Is(err, io.EOF) {
			p.flush()
			return p.stat, nil
		}
		if err != nil {
			return Stat{}, fmt.Errorf("read patch: %w", err)
		}
		if p.old > 0 || p.new > 0 {
			p.body(text)
			continue
		}
		p.header(text)
	}
}

// patchReader is the state of a reader: old and new count the remaining lines of the
// current hunk, at is the next line of the base.
type patchReader struct {
	in       *bufio.Reader
	stat     Stat
	file     *File
	old, new int
	at       int
	binary   bool // in the encoded part of a binary patch
}

// line returns the next line, cut at the longest header: the length of a changed line
// does not matter.
func (p *patchReader) line() ([]byte, error) {
	text, err := p.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		kept := bytes.Clone(text[:2*maxPatchPath])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = p.in.ReadSlice('\n')
		}
		text = kept
	}
	if errors.Is(err, io.EOF) && len(text) > 0 {
		err = nil
	}
	return bytes.TrimSuffix(text, []byte("\n")), err
}

func (p *patchReader) flush() {
	if p.file == nil {
		return
	}
	p.stat.Added += p.file.Added
	p.stat.Removed += p.file.Removed
	if len(p.stat.Files) < maxStatFiles {
		p.stat.Files = append(p.stat.Files, *p.file)
	} else {
		p.stat.More++
	}
	p.file, p.binary = nil, false
}

func (p *patchReader) header(text []byte) {
	line := string(text)
	if rest, ok := strings.CutPrefix(line, "diff --git "); ok {
		p.flush()
		p.file = &File{Path: bothNames(strings.TrimSuffix(rest, "\r"))}
		return
	}
	if p.file == nil || p.binary {
		return
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "---":
		// The new name follows; this one matters for deleted files only.
		if name, ok := oneName(rest, "a/"); ok {
			p.file.Path = name
		}
	case "+++":
		if name, ok := oneName(rest, "b/"); ok {
			p.file.Path = name
		}
	case "rename", "copy":
		if name, ok := strings.CutPrefix(rest, "from "); ok {
			p.file.From = unquote(name)
		} else if name, ok := strings.CutPrefix(rest, "to "); ok {
			p.file.Path = unquote(name)
		}
	case "new":
		mode, isNew := strings.CutPrefix(rest, "file ")
		p.file.New = isNew
		p.file.Mode = strings.TrimPrefix(mode, "mode ")
	case "deleted":
		p.file.Deleted = true
	case "Binary":
		p.file.Binary = true
	case "GIT":
		p.file.Binary, p.binary = true, true
	case "@@":
		p.hunk(rest)
	}
}

// hunk reads "-a,b +c,d @@ …".
func (p *patchReader) hunk(rest string) {
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return
	}
	begin, old, ok1 := countsOf(fields[0], "-")
	_, added, ok2 := countsOf(fields[1], "+")
	if !ok1 || !ok2 {
		return
	}
	p.at, p.old, p.new = begin, old, added
	if old == 0 {
		p.at++ // "after line a" is "before line a+1"
	}
}

func countsOf(field, sign string) (begin, count int, ok bool) {
	field, ok = strings.CutPrefix(field, sign)
	first, second, two := strings.Cut(field, ",")
	begin, err := strconv.Atoi(first)
	count = 1
	if two && err == nil {
		count, err = strconv.Atoi(second)
	}
	// No real file has a hunk beyond these sizes.
	const most = 1 << 30
	return begin, count, ok && err == nil && begin >= 0 && count >= 0 && begin < most && count < most
}

// body counts a line within a hunk.
func (p *patchReader) body(text []byte) {
	var first byte = ' ' // some programs strip the blank of an empty line
	if len(text) > 0 {
		first = text[0]
	}
	switch first {
	case '+':
		p.new--
		p.file.Added++
		p.touch(p.at)
	case '-':
		p.old--
		p.file.Removed++
		p.touch(p.at + 1)
		p.at++
	case '\\': // "No newline at end of file" belongs to the line before
	case ' ', '\t', '\r':
		p.old--
		p.new--
		p.at++
	default:
		// Not a hunk's line: the counts were wrong. The following lines are read as
		// headers again, so one damaged hunk does not hide the next file.
		p.old, p.new = 0, 0
		p.header(text)
		return
	}
}

// touch extends the current span to end, or begins one at p.at.
func (p *patchReader) touch(end int) {
	spans := p.file.Spans
	switch {
	case len(spans) > 0 && spans[len(spans)-1].End == p.at:
		spans[len(spans)-1].End = end
	case len(spans) < maxSpans:
		p.file.Spans = append(spans, Span{p.at, end})
	default:
		p.file.Whole = true
	}
}

// bothNames reads the name from "a/x b/x", where both are equal.
func bothNames(rest string) string {
	if strings.HasPrefix(rest, `"`) {
		if end := strings.Index(rest[1:], `"`); end >= 0 {
			return strings.TrimPrefix(unquote(rest[:end+2]), "a/")
		}
		return rest
	}
	if half := len(rest) / 2; len(rest)%2 == 1 && rest[half] == ' ' {
		a, b := strings.TrimPrefix(rest[:half], "a/"), strings.TrimPrefix(rest[half+1:], "b/")
		if a == b {
			return a
		}
	}
	_, name, _ := strings.Cut(rest, " b/")
	return name
}

func oneName(field, prefix string) (string, bool) {
	name, _, _ := strings.Cut(field, "\t")
	name = unquote(strings.TrimSuffix(name, "\r"))
	if name == "/dev/null" {
		return "", false
	}
	return strings.TrimPrefix(name, prefix), true
}

// unquote undoes the quoting of names with unusual characters, which is C's
// and, for what git writes, also Go's.
func unquote(name string) string {
	if plain, err := strconv.Unquote(name); err == nil && strings.HasPrefix(name, `"`) {
		return plain
	}
	return name
}
