package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A patchFile is the difference between two trees, in a file.
type patchFile struct {
	path    string // "" if there is none
	size    int64
	sum     string   // SHA-256, hexadecimal
	files   int      // that it changes
	notable []string // changed files that deserve a look, and why
}

// diff writes the patch from one state to another, and checks that it leads
// from one to the other.
func (d *directory) diff(ctx context.Context, before, after state) (patchFile, error) {
	p := patchFile{path: d.file("patch")}
	f, err := os.Create(p.path)
	if err != nil {
		return patchFile{}, err
	}
	defer f.Close()
	out := &patchWriter{file: f, sum: sha256.New(), limit: d.limits.Patch}
	both := &diffWriter{patch: out}
	if after.tree != before.tree {
		args := git.DiffTree("--raw", "--no-abbrev", "-p", "--binary", "--full-index", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", before.tree, after.tree)
		if err := d.repo.Pipe(ctx, nil, both, args...); err != nil {
			return patchFile{}, err
		}
	}
	p.size, p.sum = out.size, hex.EncodeToString(out.sum.Sum(nil))
	if out.size == 0 {
		return p, nil
	}
	changes, err := parseRaw(both.raw.String())
	if err != nil {
		return patchFile{}, err
	}
	if err := d.verify(ctx, p.path, changes); err != nil {
		return patchFile{}, err
	}
	p.files, p.notable = len(changes), notables(changes)
	return p, nil
}

// verify applies the patch to what it changes, without any file.
func (d *directory) verify(ctx context.Context, patch string, changes []fileChange) error {
	var old []git.Entry
	for _, c := range changes {
		if c.old.Mode != 0 {
			old = append(old, c.old)
		}
	}
	repo := d.repo
	repo.Index = d.file("index.verify")
	if err := writeIndex(repo.Index, old); err != nil {
		return err
	}
	if err := repo.Run(ctx, "apply", "--cached", "--whitespace=nowarn", patch); err != nil {
		return fmt.Errorf("the patch does not apply to its own base: %w", err)
	}
	got, err := readIndex(repo.Index)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if e := got[c.path]; e.Mode != c.now.Mode || (e.Mode != 0 && e.Object != c.now.Object) {
			return fmt.Errorf("the patch does not lead to what %s is", disk.Printable(c.path))
		}
	}
	return nil
}
