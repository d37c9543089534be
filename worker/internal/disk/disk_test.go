package disk

import (
	"os"
	"path/filepath"
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
