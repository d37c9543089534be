package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// grafted is the ref under which the host's git keeps a grafted tree.
const grafted = "refs/penstock/after"

// graft makes a tree of the base's and what is staged. It costs what changed,
// whatever the size of the rest: neither an index nor a tree is read as a
// whole.
func (w *Workspace) graft(ctx context.Context, known git.Listing, st *stage, left *skipped) (string, error) {
	added, err := w.content(ctx, known, st, left)
	if err != nil {
		return "", err
	}
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit %s\ncommitter Penstock <penstock@penstock.invalid> 0 +0000\ndata 0\nfrom %s\n", grafted, w.commit)
	// What is gone comes first: below it something else may be.
	for _, p := range st.deleted {
		fmt.Fprintf(&in, "D %s\n", git.Quote(p))
	}
	for _, e := range slices.Concat(st.moved, added) {
		fmt.Fprintf(&in, "M %o %s %s\n", e.Mode, e.Object, git.Quote(e.Path))
	}
	in.WriteString("ls \"\"\n")
	var tree bytes.Buffer
	if err := w.repo().Pipe(ctx, &in, &tree, "fast-import", "--quiet", "--force", "--date-format=raw"); err != nil {
		return "", err
	}
	fields := strings.Fields(tree.String()) // mode, "tree", id
	if len(fields) != 3 || !git.IsCommit(fields[2]) {
		return "", fmt.Errorf("git fast-import printed %q", tree.String())
	}
	return fields[2], nil
}

// content stores what is staged and returns where it belongs. An index of
// what changed, and of the attributes that decide how, is all that git needs.
func (w *Workspace) content(ctx context.Context, known git.Listing, st *stage, left *skipped) ([]git.Entry, error) {
	index := w.path("index.small")
	entries := known.Attributes()
	for _, p := range st.paths {
		if i, found := known.Find(p); found {
			entries = append(entries, known[i])
		}
	}
	if err := writeIndex(index, entries); err != nil {
		return nil, err
	}
	var added []git.Entry
	if len(st.paths) > 0 {
		if err := w.addFiles(ctx, st, index, left); err != nil {
			return nil, err
		}
		after, err := readIndex(index)
		if err != nil {
			return nil, err
		}
		for _, p := range st.paths {
			if e, ok := after[p]; ok {
				added = append(added, e)
			}
		}
	}
	raw, err := w.rawEntries(ctx, st)
	return append(added, raw...), err
}

// writeIndex makes an index of entries. To git none is an empty one.
func writeIndex(index string, entries []git.Entry) error {
	if len(entries) > 0 {
		return git.WriteIndex(index, entries)
	}
	if err := os.Remove(index); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// readIndex returns the entries of a small index, by path.
func readIndex(index string) (map[string]git.Entry, error) {
	entries, _, err := git.ReadIndex(index)
	if err != nil {
		return nil, err
	}
	found := make(map[string]git.Entry, len(entries))
	for _, e := range entries {
		found[e.Path] = e
	}
	return found, nil
}
