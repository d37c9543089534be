package gitmonitor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// repository has names of all lengths, which decide how version 2 pads them, and of
// directories that share beginnings, which decide what version 4 leaves out.
func repository(t *testing.T) string {
	dir := t.TempDir()
	for i := range 40 {
		name := filepath.Join(dir, strings.Repeat("d", i%7+1), strings.Repeat("n", i+1))
		if i > 30 {
			name += strings.Repeat("/"+strings.Repeat("deep", 40), 2)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(fmt.Sprint(i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	exectest.Script(t, dir, "git init -q; git add -A; git commit -qm one; touch intended; git add -N intended; git update-index --skip-worktree d/n") // two of these need version 3
	return dir
}

func index(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNamesOfAnIndex(t *testing.T) {
	dir := repository(t)
	empty := index(t, gitInit(t))
	for _, version := range []string{"3", "4", "2"} {
		if version == "2" {
			exectest.Script(t, dir, "git update-index --no-skip-worktree d/n; git rm -q --cached intended")
		}
		exectest.Script(t, dir, "git update-index --index-version "+version)
		data := index(t, dir)
		if data[7] != version[0]-'0' {
			t.Fatalf("git wrote version %d, not %s", data[7], version)
		}
		var got []string
		err := onlyInFirst(data, empty, func(name string) error { got = append(got, name); return nil })
		want := strings.Split(strings.TrimSuffix(exectest.Script(t, dir, "git ls-files -z"), "\x00"), "\x00")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("version %s: got %q, err %v, want %q", version, got, err, want)
		}
	}
}

func gitInit(t *testing.T) string {
	dir := t.TempDir()
	exectest.Script(t, dir, "git init -q; git read-tree --empty")
	return dir
}

func TestOnlyInFirst(t *testing.T) {
	dir := repository(t)
	before := index(t, dir)
	exectest.Script(t, dir, "echo a > a; echo z > z; echo m > ddd/m; git add -A; git rm -q --cached dd/nn")
	for _, c := range []struct {
		first, second []byte
		want          string
	}{
		{index(t, dir), before, "a ddd/m z"}, {before, index(t, dir), "dd/nn"}, {before, before, ""},
	} {
		var got []string
		err := onlyInFirst(c.first, c.second, func(name string) error { got = append(got, name); return nil })
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("got %q, err %v, want %q", got, err, c.want)
		}
	}
}

// Agents write indexes, so any bytes can be one.
func TestDamagedIndexIsRefused(t *testing.T) {
	dir := repository(t)
	split := repository(t)
	exectest.Script(t, split, "git update-index --split-index")
	nothing := func(string) error { return nil }
	if err := onlyInFirst(index(t, split), index(t, dir), nothing); err == nil {
		t.Error("a split index was accepted")
	}
	for _, version := range []string{"3", "4"} {
		exectest.Script(t, dir, "git update-index --index-version "+version)
		data := index(t, dir)
		for n := range bytes.Index(data, []byte("TREE")) { // the first extension
			if err := onlyInFirst(data[:n], data, nothing); err == nil {
				t.Errorf("version %s: %d of %d bytes were accepted", version, n, len(data))
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		_ = onlyInFirst(a, b, func(string) error { return nil })
	})
}
