// Package idset has sets of very many job ids; values only.
package idset

import (
	"bytes"
	"iter"
	"slices"

	"github.com/google/uuid"
)

// A Set has ids, most of which are UUIDs: of these each costs 17 bytes. It is for one goroutine.
type Set struct {
	ids  []held
	more map[string]bool // those that are no UUIDs
}

type held struct {
	uuid.UUID
	removed bool
}

// Of returns the set of some ids.
func Of(ids iter.Seq[string]) *Set {
	s := &Set{more: map[string]bool{}}
	for id := range ids {
		if parsed, ok := plain(id); ok {
			s.ids = append(s.ids, held{UUID: parsed})
		} else {
			s.more[id] = true
		}
	}
	slices.SortFunc(s.ids, func(a, b held) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
	return s
}

// plain reads an id that is written as [uuid.UUID.String] writes it, and in no other form.
func plain(id string) (uuid.UUID, bool) {
	parsed, err := uuid.Parse(id)
	return parsed, err == nil && parsed.String() == id
}

// find returns where an id is; nil: it is not among the UUIDs of the set.
func (s *Set) find(id string) *held {
	parsed, ok := plain(id)
	if !ok {
		return nil
	}
	at, found := slices.BinarySearchFunc(s.ids, parsed, func(h held, id uuid.UUID) int { return bytes.Compare(h.UUID[:], id[:]) })
	if !found {
		return nil
	}
	return &s.ids[at]
}

// Has reports whether the set has an id.
func (s *Set) Has(id string) bool {
	h := s.find(id)
	return s.more[id] || h != nil && !h.removed
}

// Remove removes an id, which need not be there.
func (s *Set) Remove(id string) {
	delete(s.more, id)
	if h := s.find(id); h != nil {
		h.removed = true
	}
}

// All yields the ids of the set.
func (s *Set) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, h := range s.ids {
			if !h.removed && !yield(h.String()) {
				return
			}
		}
		for id := range s.more {
			if !yield(id) {
				return
			}
		}
	}
}
