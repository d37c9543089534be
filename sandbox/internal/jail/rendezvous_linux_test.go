package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// What a killed starter has left is removed by the next start; what belongs
// to a living one, or to something else, stays.
func TestOldRendezvousAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // a socket's path must be short
	parent := t.TempDir()
	dead := fmt.Sprintf("penstock-%s-%d-1-5", token.Namespace(), os.Getpid())
	kept := []string{"penstock-" + token.Own() + "-5", "penstock-other-1-1-5", "penstock-" + token.Namespace() + "-state", "else"}
	for _, name := range append(kept, dead) {
		if err := os.MkdirAll(filepath.Join(parent, name, "meet"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m, err := meetIn(parent, []mechanism.Shown{{Data: []byte("x")}, {Data: []byte("y"), Executable: true}})
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{
		m.outer: os.ModeDir | 0o700, m.dir: os.ModeDir | 0o755, m.dir + "/control": os.ModeSocket | 0o666, m.dir + "/0": 0o444, m.dir + "/1": 0o555,
	} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: got %v, err %v, want %v", path, st.Mode(), err, mode)
		}
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != len(kept) {
		t.Errorf("got %v, err %v, want %v", entries, err, kept)
	}
}

// A path that is too long for a socket is no reason not to start.
func TestARendezvousElsewhere(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	if m, err := meetIn(long, nil); err == nil {
		t.Errorf("a socket in %s", m.dir)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, err %v", left, err)
	}
	t.Setenv("TMPDIR", long)
	m, err := newRendezvous([]mechanism.Shown{{Data: []byte("secret")}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if !inMemory(m.dir) {
		t.Errorf("%s is on a disk", m.dir)
	}
}

// A jail that had connected when the client ended is let in; others are not
// waited for.
func TestNobodyIsWaitedForWithoutAClient(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	m, err := newRendezvous(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.hand(t.Context(), nil, gone); err == nil || !strings.Contains(err.Error(), "the client ended") {
		t.Errorf("got %v", err)
	}
}
