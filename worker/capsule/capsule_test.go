package capsule_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/worker/capsule"
)

const (
	pattern = capsule.Pattern(".claude/projects/*/{id}.jsonl")
	id      = "0198c0de-0000-7000-8000-000000000001"
	file    = ".claude/projects/-workspace/" + id + ".jsonl"
)

func in(home, id string) capsule.Conversation {
	return capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{pattern}}, ID: id}
}

// A cleaner cleans lines and values by one function.
type cleaner func([]byte) []byte

func (c cleaner) Line(line []byte) []byte { return c(line) }

func (c cleaner) Mask(value []byte) []byte { return c(value) }

var asIs = cleaner(func(line []byte) []byte { return line })

// put writes a file into a home.
func put(t *testing.T, home, name, content string) {
	t.Helper()
	path := filepath.Join(home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// files lists what is in a home.
func files(t *testing.T, home string) (found []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(home), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Only the conversation is packed, without secrets and without a line that is
// not whole; the same home gives the same bytes.
func TestAConversationIsPackedAlone(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	put(t, home, file, `{"a":"secret"}`+"\n"+`{"b":2}`+"\n"+`{"torn":`)
	put(t, home, ".claude/.credentials.json", "key")
	put(t, home, ".claude.json", "{}")
	put(t, home, ".claude/projects/-workspace/another.jsonl", "{}\n")
	clean := func(line []byte) []byte { return bytes.ReplaceAll(line, []byte("secret"), []byte("*")) }
	var first, second bytes.Buffer
	if err := errors.Join(in(home, id).Pack(&first, cleaner(clean)), in(home, id).Pack(&second, cleaner(clean))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same home gave other bytes")
	}
	if err := in(other, id).Unpack(&first); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(other, file))
	if err != nil || string(got) != `{"a":"*"}`+"\n"+`{"b":2}`+"\n" {
		t.Errorf("unpacked %q, %v", got, err)
	}
	if found := files(t, other); len(found) != 1 {
		t.Errorf("unpacked %v", found)
	}
}

// A pattern may have the beginning of the id, also of one that is shorter.
func TestAPatternHasTheBeginningOfTheID(t *testing.T) {
	for id, name := range map[string]string{id: "chats/session-0198c0de.jsonl", "a-1": "chats/session-a-1.jsonl"} {
		home, other := t.TempDir(), t.TempDir()
		put(t, home, name, "{}\n")
		put(t, home, "chats/session-0198c0df.jsonl", "{}\n")
		var packed bytes.Buffer
		of := capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{"chats/session-*{id8}*.jsonl"}}, ID: id}
		err := of.Pack(&packed, asIs)
		of.Home = other
		if err = errors.Join(err, of.Unpack(&packed)); err != nil || !slices.Equal(files(t, other), []string{name}) {
			t.Errorf("%s: unpacked %v, %v", id, files(t, other), err)
		}
	}
}

// Files below a directory are packed, those that are no lines as a whole, and what is to be left
// out is not looked at.
func TestFilesAreLeftOut(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	for _, name := range []string{"a/" + id + ".jsonl", "a/deep/er/state.json", "a/lock", "a/deep/lock", "b/" + id + "/x"} {
		put(t, home, name, "{}")
	}
	put(t, home, "a/"+id+".jsonl", "{}\n{")
	for n := range 2001 {
		put(t, home, fmt.Sprintf("a/cache/%d", n), "")
	}
	var packed bytes.Buffer
	of := capsule.Conversation{Home: home, ID: id, Files: capsule.Files{
		Paths: []capsule.Pattern{"a/**", "b/{id}/*", "a/*", "none/*"}, Except: []capsule.Pattern{"a/cache/**", "a/lock", "a/*/lock"},
	}}
	err := of.Pack(&packed, asIs)
	of.Home = other
	err = errors.Join(err, of.Unpack(&packed))
	if got, want := files(t, other), []string{"a/" + id + ".jsonl", "a/deep/er/state.json", "b/" + id + "/x"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("unpacked %v, %v; want %v", got, err, want)
	}
	if got, err := os.ReadFile(filepath.Join(other, "a/deep/er/state.json")); err != nil || string(got) != "{}" {
		t.Errorf("unpacked %q, %v", got, err)
	}
}

// Files of other kinds in the place of the conversation are not taken, and do not
// block.
func TestAHomeMayBeATrap(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, filepath.Dir(outside), "outside", "host\n")
	for name, trap := range map[string]func(home, path string) error{
		"a link to the host": func(_, path string) error { return os.Symlink(outside, path) },
		"a link within": func(home, path string) error {
			put(t, home, ".netrc", "key\n")
			return os.Symlink("../../../.netrc", path)
		},
		"a FIFO":             func(_, path string) error { return syscall.Mkfifo(path, 0o644) },
		"a directory":        func(_, path string) error { return os.Mkdir(path, 0o755) },
		"a linked directory": func(home, _ string) error { return linked(home, filepath.Dir(outside)) },
		"too many names":     func(home, _ string) error { return many(home, 2001) },
		"a file that is huge": func(_, path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, capsule.MaxBytes+1))
		},
	} {
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := trap(home, filepath.Join(home, file)); err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		if err := in(home, id).Pack(&packed, asIs); err == nil {
			t.Errorf("%s: it was packed: %d bytes", name, packed.Len())
		}
	}
	for _, id := range []string{"", "..", "../x", "a/b", "*", "{id}", "-" + strings.Repeat("x", 200)} {
		if err := in(t.TempDir(), id).Pack(&bytes.Buffer{}, asIs); err == nil || errors.Is(err, capsule.ErrNone) {
			t.Errorf("conversation %q: %v", id, err)
		}
	}
	if err := in(t.TempDir(), id).Pack(&bytes.Buffer{}, asIs); !errors.Is(err, capsule.ErrNone) {
		t.Errorf("an empty home: %v", err)
	}
}

// linked lets the directory of projects lead out of the home.
func linked(home, to string) error {
	projects := filepath.Join(home, ".claude/projects")
	return errors.Join(os.WriteFile(filepath.Join(to, id+".jsonl"), []byte("{}\n"), 0o644), os.RemoveAll(projects),
		os.Mkdir(projects, 0o755), os.Symlink(to, filepath.Join(projects, "x")))
}

func many(home string, n int) error {
	for i := range n {
		if err := os.Mkdir(filepath.Join(home, ".claude/projects", fmt.Sprint(i)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// A forged capsule has nothing but the conversation, or is refused.
func TestACapsuleMayBeATrap(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"another file": {Name: ".claude.json", Typeflag: tar.TypeReg},
		"above":        {Name: "../../" + file, Typeflag: tar.TypeReg},
		"absolute":     {Name: "/" + file, Typeflag: tar.TypeReg},
		"dots within":  {Name: ".claude/projects/../" + id + ".jsonl", Typeflag: tar.TypeReg},
		"a link":       {Name: file, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"a hard link":  {Name: file, Typeflag: tar.TypeLink, Linkname: ".claude.json"},
		"a device":     {Name: file, Typeflag: tar.TypeChar},
		"a directory":  {Name: file, Typeflag: tar.TypeDir},
	} {
		var packed bytes.Buffer
		squeezed := gzip.NewWriter(&packed)
		archive := tar.NewWriter(squeezed)
		if err := errors.Join(archive.WriteHeader(&h), archive.Close(), squeezed.Close()); err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		if err := in(home, id).Unpack(&packed); err == nil || len(files(t, home)) > 0 {
			t.Errorf("%s: %v, and there is %v", name, err, files(t, home))
		}
	}
	for name, content := range map[string]string{"nothing": "", "no archive": "hello", "half of one": half(t)} {
		if err := in(t.TempDir(), id).Unpack(strings.NewReader(content)); err == nil {
			t.Errorf("%s was unpacked", name)
		}
	}
}

// half is a capsule that was not stored to its end.
func half(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	put(t, home, file, strings.Repeat("{\"a\":1}\n", 1000))
	var packed bytes.Buffer
	if err := in(home, id).Pack(&packed, asIs); err != nil {
		t.Fatal(err)
	}
	return packed.String()[:packed.Len()/2]
}
