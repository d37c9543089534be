package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// A Violation is something that a jail wanted and did not get.
type Violation struct {
	Time   time.Time `json:"ts"`
	Label  string    `json:"label"` // the jail's
	Kind   string    `json:"kind"`  // "host", "limit"
	What   string    `json:"what"`  // "evil.example:443", "memory"
	Reason string    `json:"reason"`
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

// NewStore returns the store in the file at path, which Add creates.
func NewStore(path string) *Store { return &Store{path: path} }

// Add keeps v.
func (s *Store) Add(v Violation) error {
	if v.Time.IsZero() {
		v.Time = time.Now().UTC()
	}
	// What a jail asked for can be long; a line has to stay one write.
	v.What, v.Reason = shorten(v.What), shorten(v.Reason)
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("keep violation: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("keep violation: %w", err)
	}
	last := []byte{'\n'}
	if _, err := f.ReadAt(last, st.Size()-1); st.Size() > 0 && err == nil && last[0] != '\n' {
		line = append([]byte{'\n'}, line...) // a crash cut the last line short
	}
	if st.Size() > MaxStore {
		if err := os.Rename(s.path, s.path+".1"); err != nil {
			return fmt.Errorf("keep violation: %w", err)
		}
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("keep violation: %w", err)
	}
	return nil
}

func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// A Query selects violations; a zero field selects all.
type Query struct {
	Label string
	Kind  string
	Since time.Time
}

// Find returns the violations that q selects, the oldest first. A line that
// a crash cut short is left out.
func (s *Store) Find(q Query) ([]Violation, error) {
	var found []Violation
	for _, path := range []string{s.path + ".1", s.path} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find violations: %w", err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var v Violation
			if json.Unmarshal(lines.Bytes(), &v) == nil && q.selects(v) {
				found = append(found, v)
			}
		}
		err = lines.Err()
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("find violations: %w", err)
		}
	}
	return found, nil
}

func (q Query) selects(v Violation) bool {
	return (q.Label == "" || q.Label == v.Label) && (q.Kind == "" || q.Kind == v.Kind) && !v.Time.Before(q.Since)
}
