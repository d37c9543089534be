package layout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// What a jail sees of a host has a digest that changes with it, and with nothing else.
func TestRoot(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := func(spec sandbox.Spec) Host {
		t.Helper()
		h, err := Read(spec, self)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := host(sandbox.Spec{})
	if len(first.Root()) != len("sha256:")+64 {
		t.Errorf("got %q", first.Root())
	}
	if again := host(sandbox.Spec{Workspace: t.TempDir(), Network: sandbox.NetworkFull}); again.Root() != first.Root() {
		t.Error("it depends on the job")
	}
	more := func(h *Host, digest string) {
		before := h.Packages()
		h.Packages = func() []Digest { return append(before, Digest{"/lib/apk/db/installed", digest}) }
	}
	for what, change := range map[string]func(*Host){
		"a link":                func(h *Host) { h.Links = append(h.Links, sandbox.Mount{Source: "usr/bin", Target: "/bin2"}) },
		"a directory":           func(h *Host) { h.Shared = append(h.Shared, sandbox.Mount{Source: "/opt", Target: "/opt"}) },
		"the target of one":     func(h *Host) { h.Shared = append(h.Shared, sandbox.Mount{Source: "/opt", Target: "/opt2"}) },
		"a copied file":         func(h *Host) { h.Copied = append(h.Copied, sandbox.File{Path: "/etc/x"}) },
		"contents of a file":    func(h *Host) { h.Copied = append(h.Copied, sandbox.File{Path: "/etc/x", Data: []byte("y")}) },
		"the list of packages":  func(h *Host) { more(h, "00") },
		"another list of these": func(h *Host) { more(h, "01") },
	} {
		h := host(sandbox.Spec{})
		change(&h)
		if h.Root() == first.Root() {
			t.Errorf("%s makes no difference", what)
		}
	}
}

// A list of packages is read again when it has changed, or is another file.
func TestPackageLists(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "status")
	l, paths := memory[Digest]{of: digest}, []string{file, file + ".missing"}
	read := func() string {
		t.Helper()
		all := l.read(paths)
		if len(all) != 1 || all[0].Path != file {
			t.Fatalf("got %v", all)
		}
		return all[0].SHA256
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all := l.read(paths); len(all) != 0 {
		t.Errorf("without any: %v", all)
	}
	write(file, "one")
	one := read()
	if read() != one {
		t.Error("the same file has two digests")
	}
	write(file, "three")
	if read() == one {
		t.Error("a longer file has the same digest")
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	three := read()
	write(file+".new", "eerht")
	if err := os.Chtimes(file+".new", info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if read() == three {
		t.Error("another file of the same size and time has the same digest")
	}
}
