package usage

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox/mounttest"
)

// In a child, TestMain does what the word in the environment says instead.
const childWord = "PENSTOCK_USAGE_CHILD"

func TestMain(m *testing.M) {
	switch word, arg, _ := strings.Cut(os.Getenv(childWord), " "); word {
	case "measure":
		size, err := Trees([]string{arg}, Size{})
		fmt.Println(size.Bytes, size.Inodes, err)
	case "hold":
		hold(arg)
	default:
		goleak.VerifyTestMain(m)
	}
}

// hold keeps a deleted file and memory, until its input ends.
func hold(dir string) {
	f, err := os.CreateTemp(dir, "held")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err == nil {
		_, err = f.Write(make([]byte, 3<<20))
	}
	own := make([]byte, 40<<20)
	for i := 0; i < len(own); i += 4096 {
		own[i] = 1
	}
	fmt.Println(err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Println(own[0], f.Name())
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func measure(t *testing.T, dirs ...string) Size {
	t.Helper()
	size, err := Trees(dirs, Size{})
	must(t, err)
	return size
}

func write(path string, size int) error { return os.WriteFile(path, make([]byte, size), 0o600) }

func TestTreesCountsWhatTakesRoom(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	empty := measure(t, dir)
	must(t,
		write(filepath.Join(outside, "large"), 8<<20),
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o700),
		write(filepath.Join(dir, "a/b/file"), 1<<20),
		os.Link(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "a/second name")),
		os.Symlink(outside, filepath.Join(dir, "a/link")),
		os.Symlink(filepath.Join(outside, "large"), filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		write(filepath.Join(dir, "hole"), 0), os.Truncate(filepath.Join(dir, "hole"), 1<<40))
	got := measure(t, dir).Sub(empty)
	if got.Inodes != 7 || got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("got %+v, want 7 inodes and a little more than 1 MiB", got)
	}
	if nested := measure(t, dir, filepath.Join(dir, "a"), dir); nested != measure(t, dir) {
		t.Errorf("a directory inside, and the same again, count twice: %+v", nested)
	}
	if _, err := Trees([]string{filepath.Join(dir, "nothing")}, Size{}); err == nil {
		t.Error("a directory that is not there was measured")
	}
}

func TestTreesStopsWhenItKnowsEnough(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		sub := filepath.Join(dir, strconv.Itoa(i))
		must(t, os.Mkdir(sub, 0o700), write(filepath.Join(sub, "f"), 4096))
	}
	all := measure(t, dir)
	for _, most := range []Size{{Inodes: 10}, {Bytes: 1 << 16}} {
		got, err := Trees([]string{dir}, most)
		if err != nil || !got.Exceeds(most) || got.Inodes >= all.Inodes {
			t.Errorf("%+v: got %+v of %+v, err %v", most, got, all, err)
		}
	}
}

// A tree that is deeper than there are descriptors is measured to its end.
func TestTreesGoesToTheBottom(t *testing.T) {
	dir := t.TempDir()
	const depth = 5000
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(at, "a", 0o700), unix.Mkdirat(at, "b", 0o700))
		next, err := unix.Openat(at, "a", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	var before, low unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	low = before
	low.Cur = 64
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	got, err := Trees([]string{dir}, Size{})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before), err)
	if got.Inodes != 2*depth+1 {
		t.Errorf("got %d inodes, want %d", got.Inodes, 2*depth+1)
	}
}

// Another file system that is mounted inside is none of ours.
func TestTreesStaysOnItsFileSystem(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "mounted")
	must(t, os.Mkdir(inside, 0o700))
	empty := measure(t, dir)
	if err := unix.Mount("none", inside, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	defer func() { must(t, unix.Unmount(inside, unix.MNT_DETACH)) }()
	must(t, write(filepath.Join(inside, "f"), 1<<20))
	if got := measure(t, dir); got.Bytes > empty.Bytes {
		t.Errorf("got %+v, without the mount %+v", got, empty)
	}
	if got := Mounted(inside); got.Bytes < 1<<20 || got.Inodes < 1 {
		t.Errorf("the mounted file system has %+v", got)
	}
	if got := Mounted(dir); (dirType(t, dir) != unix.TMPFS_MAGIC) && got != (Size{}) {
		t.Errorf("a file system of the host has %+v", got)
	}
}

func dirType(t *testing.T, dir string) int64 {
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	return int64(st.Type)
}

// A user without privileges can still read directories that their owner, the same
// user, has closed; and finds them closed afterwards.
// On an overlay of two file systems, files are on another device than their directories.
func TestTreesOnAnOverlay(t *testing.T) {
	root := mounttest.Overlay(t)
	if err := os.WriteFile(filepath.Join(root, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if size, err := Trees([]string{root}, Size{}); err != nil || size.Bytes < 1<<20 {
		t.Errorf("measured %+v, %v", size, err)
	}
}

func TestTreesOpensWhatWasClosed(t *testing.T) {
	dir, err := os.MkdirTemp("", "usage") //nolint:usetesting // the directory of the test is not another user's to enter
	must(t, err)
	defer os.RemoveAll(dir)
	closed := map[string]os.FileMode{"none": 0, "read": 0o400, "search": 0o100, "none/below": 0}
	for _, name := range []string{"none", "read", "search", "none/below"} {
		sub := filepath.Join(dir, name)
		must(t, os.Mkdir(sub, 0o700), os.Mkdir(sub+"/d", 0o700), write(sub+"/d/f", 1<<20), write(sub+"/f", 1<<20))
	}
	want := measure(t, dir)
	for _, name := range []string{"none/below", "none", "read", "search"} {
		must(t, os.Chmod(filepath.Join(dir, name), closed[name]))
	}
	out := asNobody(t, dir, "measure "+dir)
	if got := strings.TrimSpace(out); got != fmt.Sprint(want.Bytes, want.Inodes, " <nil>") {
		t.Errorf("got %s, want %+v", got, want)
	}
	for name, mode := range closed {
		if st, err := os.Stat(filepath.Join(dir, name)); os.Geteuid() == 0 && (err != nil || st.Mode().Perm() != mode) {
			t.Errorf("%s has mode %v, err %v, want %v", name, st.Mode(), err, mode)
		}
	}
}

// asNobody runs a word of TestMain as a user without privileges, who owns dir.
func asNobody(t *testing.T, dir, word string) string {
	t.Helper()
	const nobody = 65534
	binary := filepath.Join(dir, "..", filepath.Base(dir)+"-binary")
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err, os.WriteFile(binary, self, 0o755))
	defer os.Remove(binary)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childWord+"="+word)
	if os.Geteuid() == 0 {
		must(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
			must(t, err)
			return os.Lchown(p, nobody, nobody)
		}))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Another process moves directories away while they are walked.
func TestTreesSurvivesMoves(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b/c/d"), 0o700), os.MkdirAll(filepath.Join(dir, "z"), 0o700))
	top, err := unix.Open(dir, openDir, 0)
	must(t, err)
	defer unix.Close(top)
	w := &walker{seen: map[inode]struct{}{}, buf: make([]byte, 4096)}
	at := top
	w.path = []level{{id: idOf(t, at)}}
	for _, name := range []string{"a", "b", "c"} {
		fd, l, err := w.open(at, name)
		must(t, err)
		if at != top {
			unix.Close(at)
		}
		w.path, at = append(w.path, l), fd
	}
	must(t, os.Rename(filepath.Join(dir, "a/b/c"), filepath.Join(dir, "z/c")))
	self := walkTop(t, top)
	if at, err = w.up(self, at); err != nil || !sameDir(at, w.path[len(w.path)-1].id) || len(w.path) != 3 {
		t.Errorf("after a move: at level %d, err %v", len(w.path)-1, err)
	}
	must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z/a")), os.Rename(filepath.Join(dir, "z/a/b"), filepath.Join(dir, "b")))
	if at, err = w.up(self, at); err != nil || !sameDir(at, self.id) || len(w.path) != 1 {
		t.Errorf("after another: at level %d, err %v", len(w.path)-1, err)
	}
	unix.Close(at)
}

func walkTop(t *testing.T, fd int) top { return top{fd, idOf(t, fd)} }

func idOf(t *testing.T, fd int) inode {
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	return inodeOf(&st)
}

func TestProcessesAreFoundAndMeasured(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childWord+"=hold "+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || said != "<nil>\n" {
		t.Fatalf("the child said %q, err %v", said, err)
	}
	child := cmd.Process.Pid
	if all, threads := Below(os.Getpid()); len(all) < 2 || all[0] != os.Getpid() || all[1] != child || threads < 4 {
		t.Errorf("below %d are %v with %d threads, want %d", os.Getpid(), all, threads, child)
	}
	if got := Deleted([]int{child}, []string{dir}); got.Inodes != 1 || got.Bytes < 3<<20 || got.Bytes > 4<<20 {
		t.Errorf("deleted: %+v", got)
	}
	if got := Deleted([]int{child}, []string{"/proc"}); got != (Size{}) {
		t.Errorf("deleted elsewhere: %+v", got)
	}
	// The race detector's own memory is the child's as well.
	if got := Memory([]int{child}, 0); got < 40<<20 || got > 160<<20 {
		t.Errorf("memory: %d MiB", got>>20)
	}
	must(t, in.Close(), cmd.Wait())
	if _, threads := Below(child); threads != 0 {
		t.Errorf("who has ended has %d threads", threads)
	}
	if got := Memory([]int{child}, 0); got != 0 || Deleted([]int{child}, []string{dir}) != (Size{}) {
		t.Errorf("who has ended uses %d bytes", got)
	}
}

func TestRollup(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"Rss: 9 kB\nPss: 7 kB\nPss_Anon: 3 kB\nPss_File: 4 kB\nPss_Shmem: 1 kB\n", 4 << 10},
		{"Rss: 9 kB\nPss: 7 kB\n", 7 << 10}, {"", 0}, {"Pss: x kB\n", 0},
	} {
		if got := rollup(c.text); got != c.want {
			t.Errorf("%q: got %d, want %d", c.text, got, c.want)
		}
	}
}

func TestFreeFallsByWhatIsWritten(t *testing.T) {
	dir := t.TempDir()
	if one, two := Free([]string{dir}), Free([]string{dir, dir}); two.Bytes > one.Bytes+one.Bytes/2 {
		t.Errorf("one file system counts twice: %+v, %+v", one, two)
	}
}

func BenchmarkTrees(b *testing.B) {
	dir := b.TempDir()
	for i := range 800 {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 99 {
			if err := write(filepath.Join(sub, strconv.Itoa(j)), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		if s, err := Trees([]string{dir}, Size{}); err != nil || s.Inodes < 80_000 {
			b.Fatal(s, err)
		}
	}
}
