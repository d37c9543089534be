package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// commitStage adds what is staged to an index and writes its tree. Attributes
// come from the index while files are added, and so from the base: those that
// the agent changed are added afterwards.
func (d *Directory) commitStage(ctx context.Context, st *stage, index string, left *skipped) (string, error) {
	repo := d.Repo
	repo.Index = index
	if len(st.paths) > 0 {
		if err := d.addFiles(ctx, st, index, left); err != nil {
			return "", err
		}
	}
	var info bytes.Buffer
	for _, p := range st.deleted {
		fmt.Fprintf(&info, "0 %s\t%s\x00", strings.Repeat("0", max(len(d.Base), len(git.EmptyTree))), p)
	}
	raw, err := d.rawEntries(ctx, st)
	if err != nil {
		return "", err
	}
	for _, e := range raw {
		fmt.Fprintf(&info, "%o %s\t%s\x00", e.Mode, e.Object, e.Path)
	}
	if info.Len() > 0 {
		if err := repo.Pipe(ctx, &info, nil, "update-index", "-z", "--index-info"); err != nil {
			return "", err
		}
	}
	return repo.Output(ctx, "write-tree")
}

// rawEntries stores the raw files and says where they belong.
func (d *Directory) rawEntries(ctx context.Context, st *stage) ([]git.Entry, error) {
	if len(st.raw) == 0 {
		return nil, nil
	}
	var names strings.Builder
	for i := range st.raw {
		fmt.Fprintln(&names, filepath.Join(st.dir, "raw", strconv.Itoa(i)))
	}
	var out bytes.Buffer
	if err := d.Repo.Pipe(ctx, strings.NewReader(names.String()), &out, "hash-object", "-w", "--no-filters", "--stdin-paths"); err != nil {
		return nil, err
	}
	ids := strings.Fields(out.String())
	if len(ids) != len(st.raw) {
		return nil, fmt.Errorf("git hash-object named %d of %d files", len(ids), len(st.raw))
	}
	entries := make([]git.Entry, len(ids))
	for i, f := range st.raw {
		entries[i] = git.Entry{Path: f.path, Mode: f.mode, Object: ids[i]}
	}
	return entries, nil
}

func (d *Directory) addFiles(ctx context.Context, st *stage, index string, left *skipped) error {
	repo := d.Repo
	repo.Index, repo.WorkTree = index, st.files()
	// What is above the threshold goes into one pack. Thousands of small
	// objects would be thousands of files, made and removed again.
	repo.Set = append(repo.Set, "core.bigFileThreshold=1")
	add := func() error {
		in := strings.NewReader(strings.Join(st.paths, "\x00") + "\x00")
		return repo.Pipe(ctx, in, nil, "update-index", "--add", "--replace", "-z", "--stdin")
	}
	err := add()
	failed, ok := errors.AsType[*git.Error](err)
	if !ok || disk.IsFull(err) || ctx.Err() != nil {
		return err
	}
	// A file that cannot be converted as the base's attributes demand must
	// not keep the others. Our own attributes beat all, and turn that off.
	plain := []byte("* -text -eol -ident -filter !working-tree-encoding\n")
	if err := os.WriteFile(d.file("git/info/attributes"), plain, 0o600); err != nil {
		return err
	}
	defer os.Remove(d.file("git/info/attributes"))
	left.note("files were taken without conversion, because " + failed.Message)
	return add()
}

// content stores what is staged and returns where it belongs. An index of
// what changed, and of the attributes that decide how, is all that git needs.
func (d *Directory) content(ctx context.Context, known git.Listing, st *stage, left *skipped) ([]git.Entry, error) {
	index := d.file("index.small")
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
		if err := d.addFiles(ctx, st, index, left); err != nil {
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
	raw, err := d.rawEntries(ctx, st)
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
