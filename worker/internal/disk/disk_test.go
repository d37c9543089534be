package disk

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"a/b c": "a/b c", "ünï": "ünï", "a\nb": `"a\nb"`, "\xff": `"\xff"`, "\x1b[2J": `"\x1b[2J"`, "\u202egpj": `"\u202egpj"`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestTrashTakesNothingThatIsNotThere(t *testing.T) {
	trash := &Trash{Dir: t.TempDir()}
	if err := trash.Remove(t.Context(), filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if left, err := os.ReadDir(trash.Dir); err != nil || len(left) != 0 {
		t.Errorf("the trash has %v, %v; want nothing", left, err)
	}
}

// TestReleaseIgnoresForks: a child that is between fork and exec has the lock's file
// open. A second descriptor of the file stands for that child.
func TestReleaseIgnoresForks(t *testing.T) {
	for name, release := range map[string]func(*Lock) error{"Release": (*Lock).Release, "Remove": (*Lock).Remove} {
		path := filepath.Join(t.TempDir(), "lock")
		l, err := TryLock(path, syscall.LOCK_EX)
		if err != nil {
			t.Fatal(err)
		}
		forked, err := syscall.Dup(int(l.File.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if err := release(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again, err := TryLock(path, syscall.LOCK_EX)
		if err != nil {
			t.Errorf("%s: the lock is still held: %v", name, err)
		} else if err := again.Release(); err != nil {
			t.Error(err)
		}
		if err := syscall.Close(forked); err != nil {
			t.Error(err)
		}
	}
}
