package changes

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// grafted is the ref under which the host's git keeps a grafted tree.
const grafted = "refs/penstock/after"

// graft makes a tree from the base's tree and the staged files. Its cost grows with the
// changes, whatever the size of the rest: it reads neither an index nor a tree as a
// whole.
func (d *Directory) graft(ctx context.Context, known git.Listing, st *stage, left *skipped) (string, error) {
	added, err := d.content(ctx, known, st, left)
	if err != nil {
		return "", err
	}
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit %s\ncommitter Penstock <penstock@penstock.invalid> 0 +0000\ndata 0\nfrom %s\n", grafted, d.Base)
	// Removals come first: the new files may have the removed paths as directories.
	for _, p := range st.deleted {
		fmt.Fprintf(&in, "D %s\n", git.Quote(p))
	}
	for _, e := range slices.Concat(st.moved, added) {
		fmt.Fprintf(&in, "M %o %s %s\n", e.Mode, e.Object, git.Quote(e.Path))
	}
	in.WriteString("ls \"\"\n")
	var tree bytes.Buffer
	if err := d.Repo.Pipe(ctx, &in, &tree, "fast-import", "--quiet", "--force", "--date-format=raw"); err != nil {
		return "", err
	}
	fields := strings.Fields(tree.String()) // mode, "tree", id
	if len(fields) != 3 || !git.IsCommit(fields[2]) {
		return "", fmt.Errorf("git fast-import printed %q", tree.String())
	}
	return fields[2], nil
}
