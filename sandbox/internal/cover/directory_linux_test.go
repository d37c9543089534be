package cover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A directory that is shown there hides nothing here, and what lies in it can be
// changed neither by itself nor through the view.
func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	namespace, told := elsewhere(t, dir, "cat etc/a etc/sub/b; etc/run; cat etc/opt/tree/x; cat etc/opt/tree/below/y; cat etc/old || echo gone; "+
		"for f in a new sub/new opt/tree/x opt/tree/below/new; do echo z > etc/$f || echo fixed; done")
	tree := filepath.Join(dir, "tree")
	err := errors.Join(os.MkdirAll(filepath.Join(tree, "below"), 0o755), os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/old"), nil, 0o644), os.WriteFile(filepath.Join(tree, "x"), []byte("x "), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	// What is mounted below a directory of the host is shown with it.
	if err := unix.Mount("tmpfs", tree+"/below", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(tree+"/below", unix.MNT_DETACH) //nolint:errcheck // the directory's removal would tell
	if err := os.WriteFile(filepath.Join(tree, "below/y"), []byte("y "), 0o644); err != nil {
		t.Fatal(err)
	}
	c := Cover{Directory: Directory{
		Path: filepath.Join(dir, "etc"),
		Files: []File{
			{"a", []byte("too early "), 0o644}, {"a", []byte("a "), 0o644}, {"sub/b", []byte("b "), 0o600},
			{"run", []byte("#!/bin/sh\necho ran\n"), 0o755},
		},
		Trees: []Tree{{tree, "opt/tree"}},
	}}
	if err := c.Begin().Apply(namespace); err != nil {
		t.Fatal(err)
	}
	if got, want := told(), "a b ran x y gone fixed fixed fixed fixed fixed"; got != want {
		t.Errorf("there: %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(tree, "x")); err != nil || string(b) != "x " {
		t.Errorf("here: %q, err %v", b, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "etc")); err != nil || len(entries) != 1 || entries[0].Name() != "old" {
		t.Errorf("here: %v, err %v", entries, err)
	}
}

// A jail that was not made leaves nothing of what it would have been shown.
func TestACoveringThatIsGivenUp(t *testing.T) {
	if !Possible() {
		t.Skip("only root, with its capabilities, can mount")
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	c := Cover{Directory: Directory{Path: "/etc", Files: []File{{"a", nil, 0o644}}, Trees: []Tree{{"/usr", "usr"}}}}
	before := open()
	for range 20 {
		w := c.Begin()
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	broken := c
	broken.Directory.Trees = []Tree{{"/usr", "usr"}, {"/absent", "x"}}
	if err := broken.Begin().Close(); err == nil || !strings.Contains(err.Error(), "make /etc: show /absent") {
		t.Errorf("a directory of the host that is not there: %v", err)
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// A process that was forked while a file was written has it open until it
// executes: the directory is read-only then all the same.
func TestADirectoryThatIsBusy(t *testing.T) {
	if !Possible() {
		t.Skip("only root, with its capabilities, can mount")
	}
	var m made
	defer m.close()
	root, err := m.add("/", "tmpfs", "mode", "0755")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Openat(root, "a", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- restrict(root, fixed) }()
	select {
	case err := <-done:
		t.Errorf("with a file open: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	unix.Close(fd)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := unix.Openat(root, "a", unix.O_WRONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("open: got %v", err)
	}
}
