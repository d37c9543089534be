package gitmonitor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDirectories(t *testing.T) {
	upper, lower := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(upper, "a/b"), filepath.Join(upper, ".git/refs"), filepath.Join(lower, "a/b/c d"), filepath.Join(lower, "e/.git")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(upper, "link")); err != nil {
		t.Fatal(err)
	}
	list, err := Directories([]string{upper, lower})
	if err != nil {
		t.Fatal(err)
	}
	got := directories{}
	if err := got.add(list); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(got)); strings.Join(names, ",") != ",a,a/b,a/b/c d,e,e/.git" {
		t.Errorf("got %q", names)
	}
	for name, layer := range map[string]string{"": upper, "a/b": upper, "e": lower} {
		if st, err := lstat(filepath.Join(layer, name)); err != nil || got[name] != st.Ino {
			t.Errorf("%q has %d, not %d; err %v", name, got[name], st.Ino, err)
		}
	}
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if !Lists(file, upper) || Lists(file, lower) || Lists(file+".none", upper) {
		t.Error("a list is not of the directory that it was made of, or of another one")
	}
	for _, damaged := range []string{"1", "1 a", "x a\x00", "1a\x00", " \x00"} {
		if err := (directories{}).add([]byte(damaged)); err == nil {
			t.Errorf("%q was read", damaged)
		}
	}
}
