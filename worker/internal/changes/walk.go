package changes

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A walk compares a directory that an agent wrote with the known files, and stages the
// differences. It goes from descriptor to descriptor and opens one name at a time
// without following links. So it does not matter what is renamed or replaced meanwhile:
// it reads one file or another, but never one outside.
type walk struct {
	opener
	limits Limits
	known  git.Listing
	seen   []bool
	forced []string  // sorted; not known, but never ignored
	fresh  time.Time // a Stat with an earlier time is reliable
	device uint64
	// foreign: another version control's own files lie at the top, and are not part of
	// the result.
	foreign bool
	stage   *stage

	again bool // the base's entry at this path was removed, so unchanged files are added again

	entries int
	files   int
	bytes   int64
	skipped skipped
	over    *LimitError // the first limit that was exceeded
}

// leaveOut leaves the entry at p out of the result if err is a limit: its known files
// stay as they were.
func (w *walk) leaveOut(p string, err error) error {
	limit, ok := errors.AsType[*LimitError](err)
	if !ok {
		return err
	}
	if w.over == nil {
		w.over = limit
	}
	w.skipped.add(p, fmt.Sprintf("is over the limit of %d %s", limit.Limit, limit.What))
	first, known := w.known.Find(p)
	if known {
		w.seen[first] = true
	}
	below := w.known.Below(p)
	if len(below) > 0 {
		from, _ := w.known.Find(below[0].Path)
		for i := range below {
			w.seen[from+i] = true
		}
	}
	return nil
}

func newWalk(d *Directory, before State, known git.Listing, st *stage) *walk {
	w := &walk{
		opener: opener{chmod: d.Private}, limits: d.Limits, known: known, seen: make([]bool, len(known)),
		forced: before.Forced, foreign: d.Foreign, stage: st,
	}
	if !before.Written.IsZero() {
		// A file that was written while the index was written may have the same time
		// stamps afterwards, as far as the clock's resolution goes.
		w.fresh = before.Written.Add(-20 * time.Millisecond)
	}
	return w
}

// run walks all of root. Known files that it does not find are deleted.
func (w *walk) run(ctx context.Context, root string) error {
	fd, err := w.top(root)
	if err != nil {
		return fmt.Errorf("open %s: %w", root, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	w.device = uint64(st.Dev)
	if err := w.directory(ctx, visit{fd: fd}); err != nil {
		return err
	}
	for i, e := range w.known {
		if !w.seen[i] {
			w.stage.deleted = append(w.stage.deleted, e.Path)
		}
	}
	return nil
}

// A visit is a directory that the walk has reached.
type visit struct {
	fd       int
	path     string // "" at the top
	depth    int
	patterns *git.Ignore
	ignored  bool // only known files count
}

// directory walks one open directory, which it closes.
func (w *walk) directory(ctx context.Context, at visit) error {
	f := os.NewFile(uintptr(at.fd), at.path)
	defer f.Close()
	names, err := w.names(f, at)
	if err != nil {
		return w.leaveOut(at.path, err)
	}
	if !at.ignored {
		at.patterns = at.patterns.Enter(at.path, w.ignoreFile(at))
	}
	return w.each(ctx, at.path, names, func(name string) error { return w.entry(ctx, at, name) })
}

// each visits the names in a directory, except git directories.
func (w *walk) each(ctx context.Context, dir string, names []string, visit func(name string) error) error {
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if git.IsGitDir(name) {
			w.gitDir(dir, name)
			continue
		}
		if w.foreign && dir == "" && controls[name] {
			continue
		}
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}

// controls are the directories of other version controls.
var controls = map[string]bool{
	".hg": true, ".sl": true, ".svn": true, ".jj": true, "CVS": true, ".bzr": true, "_darcs": true, ".pijul": true,
	".fslckout": true, "_FOSSIL_": true, ".p4config": true, ".p4root": true, ".eden": true,
}

// names lists an open directory, sorted, within the limits.
func (w *walk) names(f *os.File, at visit) ([]string, error) {
	if at.depth > w.limits.Depth {
		return nil, &LimitError{What: "directories above a file", Limit: int64(w.limits.Depth), Path: disk.Shorten(at.path)}
	}
	if w.entries > w.limits.Entries {
		return nil, &LimitError{What: "files and directories", Limit: int64(w.limits.Entries), Path: at.path}
	}
	names, err := f.Readdirnames(w.limits.Entries - w.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read directory %s: %w", disk.Printable(at.path), err)
	}
	if w.entries += len(names); w.entries > w.limits.Entries {
		return nil, &LimitError{What: "files and directories", Limit: int64(w.limits.Entries), Path: at.path}
	}
	slices.Sort(names)
	return names, nil
}

func (w *walk) gitDir(dir, name string) {
	switch {
	case dir == "" && name == ".git":
	case name == ".git":
		w.skipped.add(path.Join(dir, name), "the .git of a nested repository; its files are kept")
	default:
		w.skipped.add(path.Join(dir, name), "is .git to some file systems")
	}
}

func (w *walk) entry(ctx context.Context, at visit, name string) error {
	p := path.Join(at.path, name)
	var st unix.Stat_t
	err := unix.Fstatat(at.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil // without isolation other processes may change it
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", disk.Printable(p), err)
	}
	index, known := w.known.Find(p)
	kind := st.Mode & unix.S_IFMT
	ignored := at.ignored || at.patterns.Match(p, kind == unix.S_IFDIR)
	switch {
	case kind == unix.S_IFDIR && known && w.known[index].Mode == git.ModeModule:
		return w.module(at, name, index)
	case kind == unix.S_IFDIR && ignored && !w.knownBelow(p):
		return nil
	case kind == unix.S_IFDIR:
		at.ignored = ignored
		return w.descend(ctx, at, name)
	case !known && ignored && !w.isForced(p):
		return nil
	}
	return w.leaf(at.fd, p, name, &st)
}

// leaf records an entry that is no directory, if it can be part of a commit.
func (w *walk) leaf(parent int, p, name string, st *unix.Stat_t) error {
	if len(p) > w.limits.Path {
		return w.leaveOut(p, &LimitError{What: "bytes of a path", Limit: int64(w.limits.Path), Path: disk.Shorten(p)})
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return w.regular(parent, p, name, st)
	case unix.S_IFLNK:
		return w.link(parent, p, name)
	}
	w.skipped.add(p, "is neither a file, nor a directory, nor a link")
	return nil
}

// descend walks the directory name of at.
func (w *walk) descend(ctx context.Context, at visit, name string) error {
	p := path.Join(at.path, name)
	fd, err := w.open(at.fd, name, unix.O_DIRECTORY)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil
	default:
		return fmt.Errorf("open directory %s: %w", disk.Printable(p), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if uint64(st.Dev) != w.device {
		unix.Close(fd)
		w.skipped.add(p, "is on another file system")
		return nil
	}
	at.fd, at.path, at.depth = fd, p, at.depth+1
	return w.directory(ctx, at)
}

// module keeps a submodule's commit as it is: its files belong to another repository.
func (w *walk) module(at visit, name string, index int) error {
	w.seen[index] = true
	p := path.Join(at.path, name)
	fd, err := w.open(at.fd, name, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", disk.Printable(p), err)
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		w.skipped.add(p, "is a submodule; its files are not part of the result")
	}
	return nil
}

func (w *walk) regular(parent int, p, name string, st *unix.Stat_t) error {
	index, known := w.known.Find(p)
	executable := st.Mode&unix.S_IXUSR != 0
	if known && w.untouched(w.known[index], st, executable) {
		w.seen[index] = true
		return nil
	}
	fd, err := w.open(parent, name, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ELOOP:
		return nil
	default:
		return fmt.Errorf("open %s: %w", disk.Printable(p), err)
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	if err := unix.Fstat(fd, st); err != nil {
		return err
	}
	// Its device does not matter: on an overlay of two file systems, as containers have,
	// it is another one than its directory's.
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // replaced between our two looks
	}
	if known {
		w.seen[index] = true
	}
	var content io.ReadSeeker = f
	size := st.Size
	same, err := w.same(p, content, size, executable)
	if name == ".gitattributes" && size <= maxControlFile && !same && err == nil {
		// This file is added without conversion. Its bytes are what git would store
		// with the line ends that every repository has.
		if content, size, err = unixLines(f); err == nil {
			same, err = w.same(p, content, size, executable)
		}
	}
	if same || err != nil {
		return err
	}
	if err := w.count(p, size); err != nil {
		return w.leaveOut(p, err)
	}
	return w.stage.file(p, content, size, executable)
}

// untouched reports whether no process can have written to a file since its Stat was
// taken: no program can set a change time.
func (w *walk) untouched(e git.Entry, st *unix.Stat_t, executable bool) bool {
	changed := time.Unix(st.Ctim.Unix())
	return e.Mode == fileMode(executable) && changed.Before(w.fresh) &&
		changed.Equal(e.Stat.CTime) && time.Unix(st.Mtim.Unix()).Equal(e.Stat.MTime) &&
		uint32(st.Ino) == e.Stat.Inode && uint32(st.Size) == e.Stat.Size
}

// same compares a file's content with the known content of its path.
func (w *walk) same(p string, content io.ReadSeeker, size int64, executable bool) (bool, error) {
	index, known := w.known.Find(p)
	if !known || w.again || w.known[index].Mode != fileMode(executable) || size > w.limits.Bytes {
		return false, nil
	}
	sum := hasher(len(w.known[index].Object))
	fmt.Fprintf(sum, "blob %d\x00", size)
	if _, err := io.Copy(sum, io.LimitReader(content, size)); err != nil {
		return false, fmt.Errorf("read %s: %w", disk.Printable(p), err)
	}
	if hex.EncodeToString(sum.Sum(nil)) == w.known[index].Object {
		return true, nil
	}
	_, err := content.Seek(0, io.SeekStart)
	return false, err
}

func unixLines(f io.Reader) (io.ReadSeeker, int64, error) {
	content, err := io.ReadAll(io.LimitReader(f, maxControlFile))
	if err != nil {
		return nil, 0, err
	}
	r := bytes.NewReader(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")))
	return r, r.Size(), nil
}

func (w *walk) link(parent int, p, name string) error {
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(parent, name, buf)
	if err == unix.ENOENT || err == unix.EINVAL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read link %s: %w", disk.Printable(p), err)
	}
	target := string(buf[:n])
	if index, known := w.known.Find(p); known {
		w.seen[index] = true
		e := w.known[index]
		sum := hasher(len(e.Object))
		fmt.Fprintf(sum, "blob %d\x00%s", n, target)
		if e.Mode == git.ModeLink && !w.again && hex.EncodeToString(sum.Sum(nil)) == e.Object {
			return nil
		}
	}
	if err := w.count(p, int64(n)); err != nil {
		return w.leaveOut(p, err)
	}
	return w.stage.link(p, target)
}

func (w *walk) count(p string, size int64) error {
	switch {
	case w.files == w.limits.Files:
		return &LimitError{What: "changed files", Limit: int64(w.limits.Files), Path: p}
	case size > w.limits.Bytes-w.bytes:
		return &LimitError{What: "bytes in changed files", Limit: w.limits.Bytes, Path: p}
	}
	w.files, w.bytes = w.files+1, w.bytes+size
	return nil
}

// maxControlFile is the size up to which ignore and attributes files are read.
const maxControlFile = 1 << 20

// ignoreFile reads the .gitignore of an open directory. Like git it accepts only a
// regular file.
func (w *walk) ignoreFile(at visit) []byte {
	file, err := w.open(at.fd, ".gitignore", 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(file), ".gitignore")
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxControlFile+1))
	if err != nil || len(content) > maxControlFile {
		w.skipped.add(path.Join(at.path, ".gitignore"), "is too large to be obeyed")
		return nil
	}
	return content
}

// knownBelow reports whether an ignored directory has known files.
func (w *walk) knownBelow(dir string) bool {
	if len(w.known.Below(dir)) > 0 {
		return true
	}
	dir += "/"
	i, _ := slices.BinarySearch(w.forced, dir)
	return i < len(w.forced) && strings.HasPrefix(w.forced[i], dir)
}

func (w *walk) isForced(p string) bool {
	_, found := slices.BinarySearch(w.forced, p)
	return found
}

func fileMode(executable bool) uint32 {
	if executable {
		return git.ModeExec
	}
	return git.ModeFile
}

func hasher(hexLen int) hash.Hash {
	if hexLen == 64 {
		return sha256.New()
	}
	return sha1.New()
}
