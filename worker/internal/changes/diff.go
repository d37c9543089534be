package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// A fileChange is one line of a raw diff; a mode of 0 means: not there.
type fileChange struct {
	path     string
	old, now git.Entry
}

// Notable lists the files that differ between two trees and that people should check
// before they work in a checkout that has them, and why.
func Notable(ctx context.Context, repo git.Repo, from, to string) ([]string, error) {
	var raw bytes.Buffer
	if err := repo.Pipe(ctx, nil, &raw, git.DiffTree("--raw", "--no-abbrev", from, to)...); err != nil {
		return nil, err
	}
	changes, err := parseRaw(raw.String())
	return notables(changes), err
}

// parseRaw reads the lines of a raw diff: modes, ids and a letter, and after a tab the
// path, quoted if it has unusual characters.
func parseRaw(raw string) ([]fileChange, error) {
	var all []fileChange
	for line := range strings.Lines(raw) {
		meta, p, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		fields := strings.Fields(strings.TrimPrefix(meta, ":"))
		if len(fields) != 5 || p == "" {
			return nil, fmt.Errorf("git diff-tree printed %q", line)
		}
		old, errOld := strconv.ParseUint(fields[0], 8, 32)
		mode, errNew := strconv.ParseUint(fields[1], 8, 32)
		var errPath error
		if p[0] == '"' {
			p, errPath = strconv.Unquote(p)
		}
		if err := errors.Join(errOld, errNew, errPath); err != nil {
			return nil, fmt.Errorf("git diff-tree printed %q: %w", line, err)
		}
		all = append(all, fileChange{
			path: p, old: git.Entry{Path: p, Mode: uint32(old), Object: fields[2]}, now: git.Entry{Path: p, Mode: uint32(mode), Object: fields[3]},
		})
	}
	return all, nil
}

// A diffWriter splits the output of git diff: the raw lines, and after an empty line
// the patch.
type diffWriter struct {
	raw   bytes.Buffer
	patch *patchWriter
	ended bool // the raw lines
}

func (d *diffWriter) Write(b []byte) (int, error) {
	if d.ended {
		return d.patch.Write(b)
	}
	seen := max(0, d.raw.Len()-1)
	d.raw.Write(b)
	end := bytes.Index(d.raw.Bytes()[seen:], []byte("\n\n"))
	if end < 0 {
		return len(b), nil
	}
	d.ended = true
	rest := bytes.Clone(d.raw.Bytes()[seen+end+2:])
	d.raw.Truncate(seen + end + 1)
	_, err := d.patch.Write(rest)
	return len(b), err
}

// patchWriter writes a file up to a limit and hashes it.
type patchWriter struct {
	file  *os.File
	sum   hash.Hash
	size  int64
	limit int64
}

func (p *patchWriter) Write(b []byte) (int, error) {
	if p.size += int64(len(b)); p.size > p.limit {
		return 0, &LimitError{What: "bytes of patch", Limit: p.limit}
	}
	p.sum.Write(b)
	return p.file.Write(b)
}
