// Package packs lets a git repository begin with packs of others, by links: nothing changes a
// pack, so two repositories on one file system can have it together. Which objects a repository
// gets so is decided by its commit: none that is not in that commit's history.
package packs

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// maxFiles is how many files of packs are linked from a repository. Each generation adds a
// pack, and git looks into all of them for each object.
const maxFiles = 20

// A Holder is a repository that has the whole history of a commit and nothing else, unless its
// history is cut.
type Holder struct{ Dir, Commit string }

// Share links packs into a git directory that shall have the history of a commit. They are those
// of the mirror, which has that history, if it has nothing else; or those of the first holder of
// an ancestor. It returns the commit whose history the directory has now, or "". What is damaged
// is passed over, as far as that is found without reading all of it, and so is what cannot be
// linked.
func Share(ctx context.Context, into string, mirror git.Repo, holders []Holder, commit string) (have string, err error) {
	if isShallow(mirror.Dir) {
		return "", nil
	}
	if files := onlyPack(ctx, mirror, commit); files != nil && link(into, files) {
		return commit, nil
	}
	for _, h := range holders {
		files, err := packsOf(h.Dir)
		if err != nil || isShallow(h.Dir) || len(files) == 0 || len(files) > maxFiles {
			continue
		}
		if mirror.Run(ctx, "merge-base", "--is-ancestor", h.Commit, commit) == nil && link(into, files) {
			return h.Commit, nil
		}
	}
	return "", ctx.Err()
}

// link gives a git directory all of these files, or none: some file systems have no links, and
// each has a limit for those of a file.
func link(into string, files []string) bool {
	for n, name := range files {
		if os.Link(name, filepath.Join(into, "objects/pack", filepath.Base(name))) != nil {
			for _, done := range files[:n] {
				_ = os.Remove(filepath.Join(into, "objects/pack", filepath.Base(done))) // at worst it stays, which harms nothing
			}
			return false
		}
	}
	return true
}

// isShallow reports whether a repository's history is cut.
func isShallow(dir string) bool {
	cut, err := os.Stat(filepath.Join(dir, "shallow"))
	return err == nil && cut.Size() > 0
}

// onlyPack returns the files of a repository's pack if it has no other, and as many objects as
// the history of a commit; else nil.
func onlyPack(ctx context.Context, repo git.Repo, commit string) []string {
	files, err := packsOf(repo.Dir)
	if err != nil || len(files) != 2 {
		return nil
	}
	count, err := objectsIn(files[0])
	if err != nil {
		return nil
	}
	reachable, err := repo.Output(ctx, "rev-list", "--objects", "--count", commit)
	if err != nil || reachable != strconv.FormatUint(uint64(count), 10) {
		return nil
	}
	return files
}

// objectsIn returns the number of objects in a pack, by its index of version 2: the last entry of
// its first table.
func objectsIn(index string) (uint32, error) {
	f, err := os.Open(index)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var n [4]byte
	_, err = f.ReadAt(n[:], 8+255*4)
	return binary.BigEndian.Uint32(n[:]), err
}

// packsOf lists the files of a repository's packs. The error says that one is not whole.
func packsOf(dir string) ([]string, error) {
	packs, err := filepath.Glob(filepath.Join(dir, "objects/pack/pack-*.pack"))
	var files []string
	for _, pack := range packs {
		index := strings.TrimSuffix(pack, ".pack") + ".idx"
		if err := checkPack(pack, index); err != nil {
			return nil, err
		}
		files = append(files, index, pack)
	}
	return files, err
}

// checkPack compares the hash at the end of a pack with that in its index, as git does when it
// opens one: gitformat-pack(5).
func checkPack(pack, index string) error {
	id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(pack), "pack-"), ".pack")
	size := int64(hex.DecodedLen(len(id)))
	own, err := tail(pack, size, 0)
	if err != nil {
		return err
	}
	noted, err := tail(index, size, size)
	if err == nil && !bytes.Equal(own, noted) {
		err = fmt.Errorf("pack %s is damaged", pack)
	}
	return err
}

// tail reads so many bytes that so many others follow to the end of a file.
func tail(name string, size, after int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(-size-after, io.SeekEnd); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	_, err = io.ReadFull(f, data)
	return data, err
}
