package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Picked is a file that Pick passes on.
type Picked struct {
	Path    string    // as people may see it
	Changed time.Time // when the host's kernel noted a change of it; no program can set that
	Content io.Reader // good until Pick goes on
}

// Pick passes the files that match patterns to take. known are the files of an
// overlay's template.
func (d *Directory) Pick(ctx context.Context, known git.Listing, patterns []string, take func(Picked) error) (left []string, err error) {
	p := newPicker(d, known, patterns)
	p.take = take
	err = p.run(ctx)
	if limit, ok := errors.AsType[*LimitError](err); ok {
		p.skipped.note("the search was given up: " + limit.Error())
		err = nil
	}
	if err != nil {
		return nil, err
	}
	for i, found := range p.matched {
		if !found {
			p.skipped.note(disk.Printable(disk.Shorten(patterns[i])) + ": there is no such file; links are not followed")
		}
	}
	return p.skipped.list(), nil
}

// A picker walks a workspace as a [walk] does, from descriptor to descriptor, but only
// where a pattern may match. In an overlay it goes through all layers at once, as the
// agent saw them.
type picker struct {
	*walk
	below    *lower // of an overlay: the lower layers that show through
	root     string
	patterns [][]string
	matched  []bool
	take     func(Picked) error
	count    int
	total    int64
}

func newPicker(d *Directory, known git.Listing, patterns []string) *picker {
	w := newWalk(d, State{}, known, nil)
	p := &picker{walk: w, root: d.Path, matched: make([]bool, len(patterns))}
	if d.View != nil {
		p.below = &lower{View: *d.View, known: known, opener: w.opener}
	}
	for _, pattern := range patterns {
		p.patterns = append(p.patterns, strings.Split(strings.TrimSuffix(pattern, "/"), "/"))
	}
	return p
}

// A want is the rest of a pattern below some directory: its parts from at. Without a
// rest, all files there match.
type want struct{ pattern, at int }

func (p *picker) run(ctx context.Context) error {
	at, err := p.begin()
	if err != nil {
		return err
	}
	for i := range p.patterns {
		at.wants = p.also(at.wants, want{i, 0})
	}
	return p.directory(ctx, at)
}

// also adds a want. One for ** includes one for the part that follows it.
func (p *picker) also(wants []want, w want) []want {
	if slices.Contains(wants, w) {
		return wants
	}
	wants = append(wants, w)
	if parts := p.patterns[w.pattern]; w.at < len(parts)-1 && parts[w.at] == "**" {
		wants = p.also(wants, want{w.pattern, w.at + 1})
	}
	return wants
}

// directory walks one directory, which it closes.
func (p *picker) directory(ctx context.Context, at seen) error {
	names, done, err := p.union(at.dirs(), at.visit)
	defer done()
	if err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if git.IsGitDir(name) {
			continue
		}
		if err := p.entry(ctx, at, name); err != nil {
			return err
		}
	}
	return nil
}

// entry handles one name.
func (p *picker) entry(ctx context.Context, at seen, name string) error {
	full := path.Join(at.path, name)
	below, wanted := p.match(at.wants, name)
	if len(below) == 0 {
		return nil
	}
	from, st, err := find(at.dirs(), name)
	if err == unix.ENOENT {
		return nil // without isolation other processes may change it
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", disk.Printable(full), err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		next, err := p.enter(at, name)
		if next == nil || err != nil {
			return err
		}
		next.wants = below
		return p.directory(ctx, *next)
	}
	if len(wanted) == 0 || p.below != nil && isWhiteout(&st) { // which records that the agent removed it
		return nil
	}
	for _, i := range wanted {
		p.matched[i] = true
	}
	switch kind {
	case unix.S_IFREG:
		return p.file(from, name, full)
	case unix.S_IFLNK:
		p.skipped.add(full, "is a link, and those are not followed")
	default:
		p.skipped.add(full, "is no regular file")
	}
	return nil
}

// match returns the wants below name if it is a directory, and the patterns that it
// matches if it is not.
func (p *picker) match(wants []want, name string) (below []want, wanted []int) {
	for _, w := range wants {
		parts := p.patterns[w.pattern]
		last := w.at >= len(parts)-1
		if w.at == len(parts) || parts[w.at] == "**" {
			below = p.also(below, w)
		} else if ok, err := path.Match(parts[w.at], name); err == nil && ok {
			below = p.also(below, want{w.pattern, w.at + 1})
		} else {
			continue
		}
		if last {
			wanted = append(wanted, w.pattern)
		}
	}
	return below, wanted
}

// file passes on one regular file. The descriptor decides what it is, because an agent
// may have replaced the name.
func (p *picker) file(from int, name, full string) error {
	shown := disk.Printable(full)
	fd, err := p.open(from, name, 0)
	switch {
	case swapped(err):
		return nil
	case err == unix.EACCES || err == unix.EPERM || err == unix.ENXIO || err == unix.ENODEV:
		p.skipped.add(full, "cannot be read: "+err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("open %s: %w", shown, err)
	}
	f := os.NewFile(uintptr(fd), shown)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if why := p.refuse(&st, shown); why != "" {
		p.skipped.add(full, why)
		return nil
	}
	p.count++
	p.total += st.Size
	return p.take(Picked{shown, time.Unix(st.Ctim.Unix()), io.LimitReader(f, st.Size)})
}

// maxPicked is the length of a path that people still see whole: results list them.
const maxPicked = 512

// refuse says why an open file is not passed on, or "".
func (p *picker) refuse(st *unix.Stat_t, shown string) string {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "is no regular file"
	case st.Nlink != 1:
		// The other name may be that of a file which the agent could not read.
		return fmt.Sprintf("has %d names (hard links): a copy would be kept", st.Nlink)
	case len(shown) > maxPicked:
		return fmt.Sprintf("its path has more than %d characters", maxPicked)
	case p.count >= p.limits.Artifacts:
		return fmt.Sprintf("is beyond the limit of %d files", p.limits.Artifacts)
	case st.Size > p.limits.ArtifactBytes-p.total:
		return fmt.Sprintf("has %d bytes, and all files together may have %d", st.Size, p.limits.ArtifactBytes)
	}
	return ""
}
