package goldentest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failures takes what would fail a test.
type failures struct {
	testing.TB
	said []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func TestCompare(t *testing.T) {
	for _, c := range []struct{ name, file, got, want string }{
		{"same", "a\nb\n", "a\nb\n", ""},
		{"another line", "a\nb\nc\n", "a\nx\nc\n", `line 2 of the file: "b\n"` + "\n" + `of the program: "x\n"`},
		{"a line more", "a\n", "a\nb\n", `line 2 of the file: ""`},
		{"a line less", "a\nb\n", "a\n", `of the program: ""`},
		{"no end of the last line", "a\n", "a", `line 1 of the file: "a\n"`},
		{"nothing", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "page.md")
			if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			f := &failures{TB: t}
			Compare(f, path, c.got, false)
			if said := strings.Join(f.said, ""); (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
				t.Errorf("got %q, want %q in it", said, c.want)
			}
			Compare(t, path, c.got, true)
			if now, err := os.ReadFile(path); err != nil || string(now) != c.got {
				t.Errorf("after an update the file has %q, %v; want %q", now, err, c.got)
			}
		})
	}
}
