package policy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A follower sees what is there, what comes, and what comes when the file was
// exchanged, each once and in order, whichever store adds it.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "violations.jsonl")
	s, other := NewStore(path), NewStore(path)
	add := func(s *Store, label, what string) {
		t.Helper()
		if err := s.Add(Violation{Label: label, Kind: KindHost, What: what}); err != nil {
			t.Fatal(err)
		}
	}
	add(s, "a.1", "0")
	add(s, "b.1", "of another")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	// What is added when the nth was seen; the last is what only the next file has.
	steps := []func(){
		func() { add(s, "a.1", "1") },
		func() { add(other, "a.2", "2") },
		func() { // a crash, and what comes behind it
			appendTo(t, path, `{"label":"a.1","what":"cut`)
			add(s, "b.1", "of another")
			add(s, "a.1", "3")
		},
		func() { // the file is exchanged, and a last line is added to it before
			appendTo(t, path, "\n"+strings.Repeat(" ", MaxStore)+"\n")
			add(other, "a.1", "4")
		},
		func() { // and there is no new one for a while
			time.AfterFunc(2*followEvery, func() {
				if err := s.Add(Violation{Label: "a.1", Kind: KindHost, What: "5"}); err != nil {
					t.Error(err)
				}
			})
		},
		stop,
	}
	seen := 0
	for v, err := range s.Follow(ctx, Query{Label: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		if v.What != fmt.Sprint(seen) {
			t.Fatalf("got %q, want the %dth", v.What, seen)
		}
		steps[seen]()
		seen++
	}
	if seen != len(steps) {
		t.Errorf("saw %d, want %d: %v", seen, len(steps), ctx.Err())
	}
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Errorf("the file was not exchanged: %v", err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
