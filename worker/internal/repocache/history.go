package repocache

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// maxShared is how many files of packs a base takes over. Each generation of bases adds a
// pack, and git looks into all of them for each object.
const maxShared = 20

// shareHistory lets a new base begin with objects that are here already and belong to the
// history of its commit: those of a mirror that was asked for nothing else, or of the base of an
// ancestor. Other objects of the mirror are not for its agent. The files are linked, since
// nothing changes them. A fetch adds what is missing.
func (m *mirror) shareHistory(ctx context.Context, repo git.Repo, commit string) error {
	if isShallow(m.path("mirror.git")) {
		return nil
	}
	have, packs := commit, []string(nil)
	only, err := m.hasOnly(commit)
	if err != nil {
		return err
	}
	if only {
		packs, err = packsOf(m.path("mirror.git"))
	} else {
		have, packs, err = m.ancestor(ctx, commit)
	}
	if err != nil || len(packs) == 0 {
		return err
	}
	for _, name := range packs {
		if err := os.Link(name, filepath.Join(repo.Dir, "objects/pack", filepath.Base(name))); err != nil {
			return err
		}
	}
	return writeRef(repo.Dir, "refs/heads/"+git.AgentBranch, have)
}

// hasOnly reports whether the mirror was asked for nothing but a commit.
func (m *mirror) hasOnly(commit string) (bool, error) {
	var refs []string
	dir := m.path("mirror.git/refs")
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			refs = append(refs, name)
		}
		return err
	})
	if _, packed := os.Stat(m.path("mirror.git/packed-refs")); packed == nil {
		return false, err
	}
	return slices.Equal(refs, []string{filepath.Join(dir, "commits", commit)}), err
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

// packsOf lists the files of a repository's packs. There are none where a pack is not whole.
func packsOf(dir string) ([]string, error) {
	packs, err := filepath.Glob(filepath.Join(dir, "objects/pack/pack-*.pack"))
	var files []string
	for _, pack := range packs {
		index := strings.TrimSuffix(pack, ".pack") + ".idx"
		if _, err := os.Stat(index); err != nil {
			return nil, err
		}
		files = append(files, index, pack)
	}
	return files, err
}
