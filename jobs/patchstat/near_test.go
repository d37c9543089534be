package patchstat

import (
	"fmt"
	"strings"
	"testing"
)

// What meets without a file in common is near, too; a file beside others is not.
func TestNear(t *testing.T) {
	t.Parallel()
	var o Overlaps
	add := func(item string, files ...File) { o.Add(item, "x", Stat{Files: files}) }
	add("file", File{Path: "a/place", New: true})
	add("directory", File{Path: "a/place/in", New: true})
	add("moves", File{Path: "lib/x", Deleted: true}, File{Path: "src/x", New: true})
	add("renames", File{Path: "app/y", From: "old/y"})
	add("into lib", File{Path: "lib/sub/new", New: true})
	add("into old", File{Path: "old/new", New: true})
	add("deletes", File{Path: "etc/z", Deleted: true})
	add("into etc", File{Path: "etc/new", New: true})
	add("changes lib", File{Path: "lib/b"})
	var got []string
	pairs, all := o.Near()
	for _, p := range pairs {
		got = append(got, fmt.Sprintf("%s+%s %v %v", p.A, p.B, p.Files, p.Conflicts))
	}
	want := "file+directory [a/place] [a/place]; moves+into lib [lib/sub/new] []; renames+into old [old/new] []"
	if strings.Join(got, "; ") != want || !all {
		t.Errorf("got %s, want %s; all %v", strings.Join(got, "; "), want, all)
	}
}

// Patches that are made to be compared for long are not.
func TestNearIsBounded(t *testing.T) {
	t.Parallel()
	var o Overlaps
	for i := range 400 {
		o.Add(fmt.Sprint("deep", i), "x", Stat{Files: []File{{Path: strings.Repeat("d/", 2000) + "f", New: true}, {Path: strings.Repeat("d/", 50) + "d"}}})
	}
	if pairs, all := o.Near(); all || len(pairs) == 0 {
		t.Errorf("%d pairs, all %v", len(pairs), all)
	}
}
