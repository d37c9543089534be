package results

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A batch whose source cannot be read again keeps it, also when the program died before there
// was a manifest. A directory with such a file and no batch of a source is not taken.
func TestSourceIsKept(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	file := filepath.Join(path, sourceName)
	if err := os.WriteFile(file, []byte("of a run that died"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := manifest(2)
	if _, err := Open(path, m); err == nil {
		t.Error("a batch without a source takes the directory")
	}
	for _, source := range []string{"found first", "found later"} {
		m.Source = []byte(source)
		d, err := Open(path, m)
		if err != nil {
			t.Fatal(err)
		}
		in, err := Source(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); string(got) != "found first" || err != nil {
			t.Errorf("the directory has %q, %v", got, err)
		}
		if err := errors.Join(in.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(t.TempDir(), manifest(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Source(d); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
