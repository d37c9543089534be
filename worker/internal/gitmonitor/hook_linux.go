package gitmonitor

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// init takes over where git runs this program as its hook, before the packages of a
// large program are initialised, as package jailinit does.
func init() {
	if len(os.Args) != 4 || os.Args[0] != jailinit.Path || os.Args[1] != hookWord {
		return
	}
	out, err := answer(os.Args[2], places{workspacePath, UpperPath, IndexPath, DirectoriesPath, LayerPath, LayerDirsPath})
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil { // git drops the output, and looks at every file
		_, _ = os.Stdout.WriteString(hookWord + ": " + err.Error() + "\n")
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// places are where the hook finds what it looks at.
type places struct{ workspace, upper, index, directories, layer, layerDirs string }

// maxNames bounds an answer. Above it, git is as fast alone.
const maxNames = 200_000

var errTooMany = errors.New("too much was written")

// answer is what the hook prints.
func answer(version string, at places) ([]byte, error) {
	if version != "2" {
		return nil, errors.New("version " + version + " of the protocol is not known")
	}
	if err := at.check(); err != nil {
		return nil, err
	}
	h, err := newHook(at)
	if err == nil {
		err = h.directory("", false)
	}
	if err == nil {
		err = h.addedFiles()
	}
	if err != nil {
		return nil, err
	}
	return h.answer, nil
}

// check refuses what the layers cannot tell of.
func (at places) check() error {
	if os.Getenv("GIT_INDEX_FILE") != "" {
		return errors.New("the index is another one")
	}
	if dir := os.Getenv("GIT_DIR"); dir != "" && !sameFile(dir, at.workspace+"/.git") {
		return errors.New("the git directory is another one")
	}
	if !sameFile(".", at.workspace) {
		return errors.New("this is not the workspace")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && bytes.Contains(mounts, []byte(" "+at.workspace+"/")) {
		err = errors.New("something is mounted in the workspace")
	}
	return err
}

func sameFile(one, other string) bool {
	a, err := os.Stat(one)
	b, errOther := os.Stat(other)
	return err == nil && errOther == nil && os.SameFile(a, b)
}

// A hook collects the names for one answer.
type hook struct {
	places
	below directories // of the layers below the upper one
	// shows reports whether the directory of that name below the upper one shows through it.
	shows func(name string) (bool, error)
	// settled: the upper directory does not change any more, so what git has read there
	// of new directories stays true.
	settled bool
	answer  []byte
	count   int
}

func newHook(at places) (*hook, error) {
	h := &hook{places: at, answer: append([]byte(token), 0), below: directories{}}
	h.shows = h.sameInode
	if err := h.below.read(at.directories); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(at.layer); errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	list, err := os.ReadFile(at.layer)
	if err != nil {
		return nil, err
	}
	h.answer = append(h.answer, list...)
	return h, h.below.read(at.layerDirs)
}

// name adds one name, of an entry or, with a slash at its end, of all below a directory.
func (h *hook) name(name string) error {
	if h.count++; h.count > maxNames {
		return errTooMany
	}
	h.answer = append(append(h.answer, name...), 0)
	return nil
}

// entry adds what may be a file now, and may have been a directory.
func (h *hook) entry(name string) error {
	return errors.Join(h.name(name), h.name(name+"/"))
}

// again is the name of no file. Git reads the directory again in which it is named.
const again = ".penstock-monitor"

// directory adds what is in a directory of the upper one. A directory that is not the
// template's is read as the agent sees it, since other layers may show through, and only
// for the directories in it: its own name with a slash stands for all files.
func (h *hook) directory(rel string, other bool) error {
	dir, prefix := h.upper+"/"+rel, rel+"/"
	if other {
		dir = h.workspace + "/" + rel
	}
	if rel == "" {
		prefix = ""
	}
	if err := h.name(prefix + again); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := h.inDirectory(prefix+e.Name(), e, other); err != nil {
			return err
		}
	}
	return nil
}

func (h *hook) inDirectory(name string, e fs.DirEntry, other bool) error {
	switch {
	case name == ".git":
		return nil
	case !e.IsDir() && other:
		return nil
	case !e.IsDir() || e.Name() == ".git":
		return h.entry(name)
	case other:
		return h.directory(name, true)
	}
	shows, err := h.shows(name)
	if err == nil && !shows {
		err = h.entry(name)
	}
	if err != nil {
		return err
	}
	if _, known := h.below[name]; h.settled && !known {
		return nil // git has read nothing below it
	}
	return h.directory(name, !shows)
}

// sameInode reports whether the template's directory, or setup's, shows through the upper
// one of that name: then it gives the agent's view its inode number.
func (h *hook) sameInode(name string) (bool, error) {
	seen, err := lstat(h.workspace + "/" + name)
	if err != nil {
		return false, err
	}
	return h.below[name] == seen.Ino, nil
}

// addedFiles adds the files of the index that the template's does not have. One that was
// removed again is in no layer.
func (h *hook) addedFiles() error {
	now, err := os.ReadFile(h.workspace + "/.git/index")
	if err != nil {
		return err
	}
	was, err := os.ReadFile(h.index)
	if err != nil {
		return err
	}
	return onlyInFirst(now, was, h.name)
}

func lstat(name string) (st syscall.Stat_t, err error) {
	if err = syscall.Lstat(name, &st); err != nil {
		err = &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st, err
}
