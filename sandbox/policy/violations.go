package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The kinds of violations.
const (
	KindHost   = "host"   // a host was not reached
	KindModel  = "model"  // a request was not passed on to a model API
	KindMCP    = "mcp"    // a message was not passed on to an MCP server
	KindRead   = "read"   // a path was not shown
	KindWrite  = "write"  // a path was not shown writable
	KindLimit  = "limit"  // a limit was reached
	KindPolicy = "policy" // a job was refused before it began
)

// A Violation is something that a jail wanted and did not get.
type Violation struct {
	Time   time.Time `json:"ts"`
	Label  string    `json:"label"` // the jail's
	Kind   string    `json:"kind"`
	What   string    `json:"what"`            // "evil.example:443", "POST /v1/files", "/home/u/.ssh", "memory", "network: full"
	Field  string    `json:"field,omitempty"` // what of a request was not permitted: "service_tier"
	Reason string    `json:"reason"`          // a word or a sentence: "not-listed"
}

// MaxStore is the size at which a store starts anew. The time before is kept
// in a second file until the next time.
const MaxStore = 8 << 20

// A Store keeps violations in a file, one JSON object a line. Programs of one
// host may share it.
type Store struct {
	path string

	mu sync.Mutex // held while the file is written or exchanged
}

// NewStore returns the store in the file at path, which Add creates, with its
// directory.
func NewStore(path string) *Store { return &Store{path: path} }

// Add keeps v.
func (s *Store) Add(v Violation) error {
	if v.Time.IsZero() {
		v.Time = time.Now().UTC()
	}
	v.What, v.Reason = shorten(v.What), shorten(v.Reason)
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.open()
	if err != nil {
		return fmt.Errorf("keep violation: %w", err)
	}
	if err := errors.Join(s.write(f, append(line, '\n')), f.Close()); err != nil {
		return fmt.Errorf("keep violation: %w", err)
	}
	return nil
}

// open returns the store's file, locked. Another program may have exchanged
// it while this one waited for the lock.
func (s *Store) open() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Stat(s.path); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		f.Close()
	}
}

func (s *Store) write(f *os.File, line []byte) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if _, err := f.ReadAt(last, st.Size()-1); st.Size() > 0 && err == nil && last[0] != '\n' {
		line = append([]byte{'\n'}, line...) // a crash cut the last line short
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	if st.Size() > MaxStore {
		return os.Rename(s.path, s.path+".1")
	}
	return nil
}

// What a jail asked for can be long.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// A Query selects violations; a zero field selects all.
type Query struct {
	Label string // of a jail; or the part before a dot, which is the id of a job for all its attempts
	Kind  string
	Since time.Time
}

// Find returns the violations that q selects, the oldest first. A line that
// a crash cut short is left out.
func (s *Store) Find(q Query) ([]Violation, error) {
	var found []Violation
	for _, path := range []string{s.path + ".1", s.path} {
		some, err := q.read(path)
		if err != nil {
			return nil, fmt.Errorf("find violations: %w", err)
		}
		found = append(found, some...)
	}
	return found, nil
}

func (q Query) read(path string) ([]Violation, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []Violation
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		var v Violation
		if json.Unmarshal(line, &v) == nil && q.selects(v) {
			found = append(found, v)
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (q Query) selects(v Violation) bool {
	return (q.Label == "" || q.Label == v.Label || strings.HasPrefix(v.Label, q.Label+".")) &&
		(q.Kind == "" || q.Kind == v.Kind) && !v.Time.Before(q.Since)
}
