package changes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Patch is the difference between two trees, in a file.
type Patch struct {
	Path    string // "" if there is none
	Size    int64
	Sum     string   // SHA-256, hexadecimal
	Files   int      // that the patch changes
	Notable []string // changed files that people should check, and why
}

// Diff writes the patch from one state to another, and verifies that it leads from one
// to the other.
func (d *Directory) Diff(ctx context.Context, before, after State) (Patch, error) {
	p := Patch{Path: d.file("patch")}
	f, err := os.Create(p.Path)
	if err != nil {
		return Patch{}, err
	}
	defer f.Close()
	out := &patchWriter{file: f, sum: sha256.New(), limit: d.Limits.Patch}
	both := &diffWriter{patch: out}
	if after.Tree != before.Tree {
		args := git.DiffTree("--raw", "--no-abbrev", "-p", "--binary", "--full-index", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", before.Tree, after.Tree)
		if err := d.Repo.Pipe(ctx, nil, both, args...); err != nil {
			return Patch{}, err
		}
	}
	p.Size, p.Sum = out.size, hex.EncodeToString(out.sum.Sum(nil))
	if out.size == 0 {
		return p, nil
	}
	changes, err := parseRaw(both.raw.String())
	if err != nil {
		return Patch{}, err
	}
	if err := d.verify(ctx, p.Path, changes); err != nil {
		return Patch{}, err
	}
	p.Files, p.Notable = len(changes), notables(changes)
	return p, nil
}

// Compare writes what differs between two states as a patch without lines around the changes. It
// is for readers of what was changed: nothing shows that it applies, and what is binary is only
// named. It ends with the error of out, if that takes no more.
func (d *Directory) Compare(ctx context.Context, before, after State, out io.Writer) error {
	if after.Tree == before.Tree {
		return nil
	}
	return d.Repo.Pipe(ctx, nil, out, git.DiffTree("-p", "-U0", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", before.Tree, after.Tree)...)
}

// verify applies the patch to its base, without writing files.
func (d *Directory) verify(ctx context.Context, patch string, changes []fileChange) error {
	var old []git.Entry
	for _, c := range changes {
		if c.old.Mode != 0 {
			old = append(old, c.old)
		}
	}
	repo := d.Repo
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
