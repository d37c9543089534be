package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// fileService is a service that keeps a jail as an empty file called by its token.
type fileService struct {
	Backend
	dir     string
	failing bool // the commands do nothing
	silent  bool // it does not answer
	answers int
}

func (s *fileService) Name() string { return "files" }

func (s *fileService) Kept(context.Context) ([]string, error) {
	if s.answers++; s.silent {
		return nil, errors.New("no answer")
	}
	entries, err := os.ReadDir(s.dir)
	var tokens []string
	for _, e := range entries {
		tokens = append(tokens, e.Name())
	}
	return tokens, err
}

func (s *fileService) End() ([][]string, []string) {
	if s.failing {
		return [][]string{{"/bin/sh", "-c", "echo no >&2; exit 1"}}, nil
	}
	return [][]string{{"/bin/false"}, {"/bin/sh", "-c", `rm "$DIR"/` + mechanism.Token}}, []string{"DIR=" + s.dir}
}

// addJail adds jails to the service: of a dead starter, of this process, of one in
// another process namespace, and something that is no jail.
func (s *fileService) addJail(t *testing.T) (dead string) {
	t.Helper()
	dead = fmt.Sprintf("kept.1_%s-%d-1-1", token.Namespace(), os.Getpid())
	for _, name := range []string{dead, token.New("kept.2"), "kept.3_other-1-1-1", "kept.4", "kept_1-2"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dead
}

func TestLeftoversOfAService(t *testing.T) {
	s := &fileService{dir: t.TempDir()}
	dead := s.addJail(t)
	for _, prefix := range []string{"kept.2", "other"} {
		if left, err := Leftovers(t.Context(), prefix, s); err != nil || len(left) > 0 {
			t.Errorf("of %q: got %v, err %v", prefix, left, err)
		}
	}
	left, err := Leftovers(t.Context(), "kept.", s)
	if err != nil || len(left) != 1 || left[0].Label != "kept.1" {
		t.Fatalf("got %v, err %v, want kept.1 alone", left, err)
	}
	if err := left[0].Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if kept, err := s.Kept(t.Context()); err != nil || slices.Contains(kept, dead) || len(kept) != 4 {
		t.Errorf("the service now holds %v, err %v", kept, err)
	}
}

func TestALeftoverThatTheServiceDoesNotGiveUp(t *testing.T) {
	s := &fileService{dir: t.TempDir(), failing: true}
	s.addJail(t)
	left, err := Leftovers(t.Context(), "kept.", s)
	if err != nil || len(left) != 1 {
		t.Fatalf("got %v, err %v", left, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := left[0].Kill(ctx); err == nil || !strings.Contains(err.Error(), "still holds") {
		t.Errorf("got %v, want that the service still holds it", err)
	}
	s.silent = true
	if left, err := Leftovers(t.Context(), "kept.", s); err == nil || len(left) > 0 {
		t.Errorf("of a service that does not answer: got %v, err %v", left, err)
	}
}

// A program that has no descriptor left to look with takes no living one for
// dead. No other test runs meanwhile, as none would be able to.
func TestNobodyIsDeadWhoCannotBeLookedAt(t *testing.T) {
	living := token.New("alive.1")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	unseen := token.Identity(os.Getpid()) == ""
	_, dead := token.Orphan(living)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if dead || !unseen {
		t.Errorf("dead: %v, could not be looked at: %v", dead, unseen)
	}
}
