package policy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"
)

// followEvery is how often a follower looks for more: programs of other
// processes write, also on file systems that send no notifications.
const followEvery = 250 * time.Millisecond

// Follow returns the violations that q selects, the oldest first, and goes on
// with those that are added, until ctx ends.
func (s *Store) Follow(ctx context.Context, q Query) iter.Seq2[Violation, error] {
	return func(yield func(Violation, error) bool) {
		found, t, err := s.startTail(q)
		if err != nil {
			yield(Violation{}, fmt.Errorf("follow violations: %w", err))
			return
		}
		defer t.close()
		for _, v := range found {
			if !yield(v, nil) {
				return
			}
		}
		for {
			line, err := t.next(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Violation{}, fmt.Errorf("follow violations: %w", err))
				return
			}
			var v Violation
			if json.Unmarshal(line, &v) == nil && q.selects(v) && !yield(v, nil) {
				return
			}
		}
	}
}

// startTail finds what is there, and returns a tail of what is added later. The
// lock keeps others from adding in between.
func (s *Store) startTail(q Query) ([]Violation, *tail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	defer held.Close()
	found, err := s.Find(q)
	if err != nil {
		return nil, nil, err
	}
	t := &tail{path: s.path}
	if err := t.open(); err != nil {
		return nil, nil, err
	}
	if _, err := t.f.Seek(0, io.SeekEnd); err != nil {
		t.close()
		return nil, nil, err
	}
	return found, t, nil
}

// A tail reads the lines of a store's file, and of those that take its place.
type tail struct {
	path      string
	f         *os.File
	r         *bufio.Reader
	part      []byte // of a line that is not whole yet
	exchanged bool   // nothing is added to f any more
}

func (t *tail) open() error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	t.close()
	t.f, t.r, t.part, t.exchanged = f, bufio.NewReader(f), nil, false
	return nil
}

func (t *tail) close() {
	if t.f != nil {
		t.f.Close()
	}
}

// next waits for a line.
func (t *tail) next(ctx context.Context) ([]byte, error) {
	for {
		line, err := t.r.ReadBytes('\n')
		t.part = append(t.part, line...)
		if err == nil {
			line, t.part = t.part, nil
			return line, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err := t.atEnd(ctx); err != nil {
			return nil, err
		}
	}
}

// atEnd returns when there may be more to read. A file that was exchanged may
// have got a last line before that, so it is read once more.
func (t *tail) atEnd(ctx context.Context) error {
	if t.exchanged {
		err := t.open()
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else {
		mine, err := t.f.Stat()
		if err != nil {
			return err
		}
		now, err := os.Stat(t.path)
		if t.exchanged = err != nil || !os.SameFile(mine, now); t.exchanged {
			return nil
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(followEvery):
		return nil
	}
}
