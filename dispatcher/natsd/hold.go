package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// held is the part of a server's directory in which the files of all streams have a second
// name while a server starts.
const held = "starting"

// A LeftOutError says that a server could not open streams that are in its directory.
type LeftOutError struct {
	Streams []string
	Reason  string // as the server said it
}

func (e *LeftOutError) Error() string {
	return fmt.Sprintf("it could not open %s, which is there as before: %s; is the disk full?", strings.Join(e.Streams, ", "), e.Reason)
}

// holdStreams gives the files of all streams a second name. A server that fails to open a
// stream at its start removes all that the stream has, also where only the disk was full
// for a moment (nats-server 2.15.2: stream.go, setupStore fails and stop is told to
// delete).
//
// It fails on a disk without room for the names. On one that knows no second names it
// does nothing.
func holdStreams(dir string) error {
	if err := dropHeld(dir); err != nil {
		return err
	}
	store := filepath.Join(dir, stored)
	if _, err := os.Stat(store); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := filepath.WalkDir(store, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(store, path)
		if err != nil {
			return err
		}
		second := filepath.Join(dir, held, in)
		switch {
		case e.IsDir():
			return os.Mkdir(second, 0o700)
		case e.Type().IsRegular():
			return os.Link(path, second)
		}
		return nil
	})
	if linkless(err) {
		return dropHeld(dir)
	}
	return err
}

// linkless reports whether err says that a file system knows no second names.
func linkless(err error) bool {
	_, link := errors.AsType[*os.LinkError](err)
	return link && (errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EMLINK))
}

// returnStreams gives streams that have been removed since holdStreams their files back,
// and returns their names. No server may run.
func returnStreams(dir string) (names []string, err error) {
	for _, stream := range removedStreams(dir) {
		whole := filepath.Join(dir, stored, stream)
		if err := errors.Join(os.RemoveAll(whole), os.MkdirAll(filepath.Dir(whole), 0o700)); err != nil {
			return names, err
		}
		if err := os.Rename(filepath.Join(dir, held, stream), whole); err != nil {
			return names, err
		}
		names = append(names, filepath.Base(stream))
	}
	return names, nil
}

// removedStreams returns the directories of streams that are held and no longer there as a
// whole.
func removedStreams(dir string) (removed []string) {
	for _, stream := range streamDirs(dir, held) {
		for _, part := range []string{"meta.inf", "meta.sum", "msgs"} {
			_, before := os.Lstat(filepath.Join(dir, held, stream, part))
			_, now := os.Lstat(filepath.Join(dir, stored, stream, part))
			if before == nil && now != nil {
				removed = append(removed, stream)
				break
			}
		}
	}
	return removed
}

// streamDirs returns the directories of streams, each by account, as in
// "PENSTOCK/streams/PS_JOBS".
func streamDirs(dir, part string) (all []string) {
	found, err := fs.Glob(os.DirFS(filepath.Join(dir, part)), "*/streams/*")
	if err != nil {
		return nil // the pattern is not wrong
	}
	for _, path := range found {
		all = append(all, filepath.FromSlash(path))
	}
	return all
}

func dropHeld(dir string) error { return os.RemoveAll(filepath.Join(dir, held)) }
