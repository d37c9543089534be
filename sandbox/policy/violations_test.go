package policy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keeper is what a second program does: it adds violations to a store.
func TestMain(m *testing.M) {
	if path := os.Getenv("POLICY_TEST_STORE"); path != "" {
		for i := range 300 {
			v := Violation{Label: "p", Kind: KindHost, What: fmt.Sprint(os.Getpid(), " ", i), Reason: strings.Repeat("r", 250)}
			if err := NewStore(path).Add(v); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Several programs write at once, and the store is exchanged meanwhile: none
// of what they keep is lost.
func TestProgramsShareAStore(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "not/there/yet/violations.jsonl"))
	if err := s.Add(Violation{Label: "first"}); err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"label":"full","what":"` + strings.Repeat("x", 10_000) + "\"}\n")
	full := bytes.Repeat(line, (MaxStore-200_000)/len(line))
	if err := os.WriteFile(s.path, full, 0o600); err != nil {
		t.Fatal(err)
	}
	var programs []*exec.Cmd
	for range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), "POLICY_TEST_STORE="+s.path), os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, cmd)
	}
	for _, cmd := range programs {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	got, err := s.Find(Query{Label: "p"})
	if err != nil || len(got) != 4*300 {
		t.Errorf("got %d violations, err %v, want all %d", len(got), err, 4*300)
	}
	if _, err := os.Stat(s.path + ".1"); err != nil {
		t.Errorf("the store was not exchanged: %v", err)
	}
	if got, err := s.Find(Query{Label: "full"}); err != nil || len(got) != len(full)/len(line) {
		t.Errorf("got %d of the time before, err %v, want %d", len(got), err, len(full)/len(line))
	}
}

func TestAWatchIsBounded(t *testing.T) {
	var kept []Violation
	w := NewWatch("a.1", func(v Violation) { kept = append(kept, v) })
	for i := range 10 * MaxWatch {
		w.Note(KindHost, fmt.Sprint("h", i/2), "not-listed")
	}
	w.Note(KindLimit, "memory", "reached") // is not lost behind them
	if last := len(kept) - 1; last != MaxWatch || kept[last].Kind != KindLimit {
		t.Fatalf("got %d kept, the last %+v", len(kept), kept[last])
	}
	if kept = kept[:MaxWatch]; w.Count() != MaxWatch+1 || kept[1].What != "h1" || kept[1].Label != "a.1" {
		t.Errorf("got %d kept, %d counted, second %+v", len(kept), w.Count(), kept[1])
	}
}

func TestViolationsAreKeptAndFound(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "violations.jsonl"))
	if got, err := s.Find(Query{}); err != nil || len(got) != 0 {
		t.Errorf("before the first: got %v, err %v", got, err)
	}
	start := time.Now().UTC()
	for i, v := range []Violation{
		{Label: "a.1", Kind: "host", What: "evil.example:443", Reason: "not-listed", Time: start.Add(-time.Hour)},
		{Label: "a.1", Kind: "limit", What: "memory"}, {Label: "b.1", Kind: "host", What: strings.Repeat("x", 10000)},
	} {
		if err := s.Add(v); err != nil {
			t.Fatal(i, err)
		}
	}
	for _, c := range []struct {
		q    Query
		want int
	}{{Query{}, 3}, {Query{Label: "a.1"}, 2}, {Query{Kind: "host"}, 2}, {Query{Label: "a.1", Kind: "host"}, 1}, {Query{Since: start}, 2}, {Query{Label: "c"}, 0}, {Query{Label: "a"}, 2}, {Query{Label: "a.1.1"}, 0}} {
		if got, err := s.Find(c.q); err != nil || len(got) != c.want {
			t.Errorf("%+v: got %d, err %v, want %d", c.q, len(got), err, c.want)
		}
	}
	if err := os.WriteFile(s.path, []byte(`{"label":"a`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Violation{Kind: "host"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Find(Query{}); err != nil || len(got) != 1 {
		t.Errorf("after a crash in the middle of a line: got %v, err %v, want what came later", got, err)
	}
}

func TestTheStoreIsBounded(t *testing.T) {
	s := NewStore(filepath.Join(t.TempDir(), "v"))
	if err := os.WriteFile(s.path, make([]byte, MaxStore+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Add(Violation{Kind: "host"}); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(s.path); err != nil || st.Size() > 1000 {
		t.Errorf("got %v, err %v, want a small file", st.Size(), err)
	}
}
