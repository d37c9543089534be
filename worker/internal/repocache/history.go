package repocache

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// maxShared is how many files of packs a base takes over. Each generation of bases adds a
// pack, and git looks into all of them for each object.
const maxShared = 20

// shareHistory lets a new base begin with objects that are here already and belong to the
// history of its commit: those of a mirror that has nothing else, or of the base of an ancestor.
// Other objects of the mirror are not for its agent. The files are linked, since nothing changes
// them. A fetch adds what is missing.
func (m *mirror) shareHistory(ctx context.Context, repo git.Repo, commit string) error {
	if isShallow(m.path("mirror.git")) {
		return nil
	}
	have, packs := commit, m.onlyPack(ctx, commit)
	if packs == nil && m.used { // else this is a second try, and what is damaged can be a base
		var err error
		if have, packs, err = m.ancestor(ctx, commit); err != nil {
			return err
		}
	}
	if packs == nil {
		return nil
	}
	for _, name := range packs {
		if err := os.Link(name, filepath.Join(repo.Dir, "objects/pack", filepath.Base(name))); err != nil {
			return err
		}
	}
	return writeRef(repo.Dir, "refs/heads/"+git.AgentBranch, have)
}

// onlyPack returns the files of the mirror's pack if all of its objects are in the history of a
// commit, and that has no others. Else it returns nil, also for a mirror that is damaged: making
// the base finds that.
func (m *mirror) onlyPack(ctx context.Context, commit string) []string {
	files, err := packsOf(m.path("mirror.git"))
	if err != nil || len(files) != 2 {
		return nil
	}
	count, err := objectsIn(files[0])
	if err != nil {
		return nil
	}
	reachable, err := m.repo().Output(ctx, "rev-list", "--objects", "--count", commit)
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

// ancestor finds a base, among those used last, whose commit is an ancestor of another.
func (m *mirror) ancestor(ctx context.Context, commit string) (have string, packs []string, err error) {
	bases, err := m.newest()
	if err != nil {
		return "", nil, err
	}
	for _, b := range bases[:min(len(bases), candidates)] {
		packs, err := packsOf(b.Git())
		if err != nil || isShallow(b.Git()) || len(packs) > maxShared {
			continue
		}
		if m.repo().Run(ctx, "merge-base", "--is-ancestor", b.Commit, commit) == nil {
			return b.Commit, packs, nil
		}
	}
	return "", nil, ctx.Err()
}

// newest lists the bases, the last used first.
func (m *mirror) newest() ([]*Base, error) {
	entries, err := entriesOf(m.path("bases"))
	if err != nil {
		return nil, err
	}
	used := map[*Base]int64{}
	var found []*Base
	for _, e := range entries {
		if info, gone := e.Info(); gone == nil {
			b := BaseAt(filepath.Join(m.path("bases"), e.Name()))
			used[b] = info.ModTime().UnixNano()
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *Base) int { return cmp.Compare(used[b], used[a]) })
	return found, nil
}

// isShallow reports whether a repository's history is cut.
func isShallow(dir string) bool {
	cut, err := os.Stat(filepath.Join(dir, "shallow"))
	return err == nil && cut.Size() > 0
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
