package results

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// selectors are the words for groups of items that Redo knows.
var selectors = map[string]func(jobs.Outcome) bool{
	"all":    func(jobs.Outcome) bool { return true },
	"failed": func(o jobs.Outcome) bool { return o == jobs.Failure },
	"error": func(o jobs.Outcome) bool {
		return o == jobs.Error || o == jobs.TimedOut || o == jobs.Cancellation
	},
}

// Redo makes items missing again and returns them. The selector is a list,
// with commas, of failed, error, all, and ids. What they came to before is
// moved to redone/<round>. A program that dies on the way loses nothing:
// either the old result counts, or the item is missing.
func (d *Dir) Redo(selector string) ([]string, error) {
	if d.held == nil {
		return nil, fmt.Errorf("redo in %s: it was opened for reading", d.files.dir)
	}
	items, err := d.selected(selector)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	m := d.Manifest()
	m.Rounds++
	if m.Redone == nil {
		m.Redone = map[string]int{}
	}
	for _, item := range items {
		m.Redone[item] = m.Rounds
	}
	// First the rounds: an item that is missing must have its new key, or
	// the pool would answer with the old job.
	if err := d.writeManifest(m); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.manifest = m
	d.mu.Unlock()
	aside := fmt.Sprintf("redone/%d", m.Rounds)
	if err := d.files.makeDirs("redone", aside); err != nil {
		return nil, err
	}
	if err := d.moveLines(items, path.Join(aside, resultsName)); err != nil {
		return nil, err
	}
	for _, item := range items {
		for _, name := range []string{patchName(item), logName(item)} {
			err := d.files.root.Rename(name, path.Join(aside, path.Base(name)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("set %s aside: %w", d.files.path(name), err)
			}
		}
	}
	return items, nil
}

// Renew gives items that are missing another key, so that the jobs that had the
// old one do not count any more. Items that have a result stay as they are.
func (d *Dir) Renew(items []string) error {
	if d.held == nil {
		return fmt.Errorf("renew in %s: it was opened for reading", d.files.dir)
	}
	m := d.Manifest()
	m.Rounds++
	if m.Redone == nil {
		m.Redone = map[string]int{}
	}
	changed := false
	for _, item := range items {
		if !d.Done(item) {
			m.Redone[item], changed = m.Rounds, true
		}
	}
	if !changed {
		return nil
	}
	if err := d.writeManifest(m); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.manifest = m
	return nil
}

func (d *Dir) selected(selector string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	chosen := map[string]bool{}
	for word := range strings.SplitSeq(selector, ",") {
		word = strings.TrimSpace(word)
		if match, ok := selectors[word]; ok {
			for item, is := range d.done {
				if match(is.outcome) {
					chosen[item] = true
				}
			}
			continue
		}
		if !slices.ContainsFunc(d.manifest.Items, func(i Item) bool { return i.ID == word }) {
			return nil, fmt.Errorf("redo %q: it is neither an item of this batch nor one of %s", word, strings.Join(slices.Sorted(maps.Keys(selectors)), ", "))
		}
		if _, ok := d.done[word]; ok {
			chosen[word] = true
		}
	}
	return slices.Sorted(maps.Keys(chosen)), nil
}

// moveLines writes the items' lines to a file of their own, and then the
// results without them.
func (d *Dir) moveLines(items []string, aside string) error {
	<-d.writer
	defer func() { d.writer <- struct{}{} }()
	gone := map[string]bool{}
	for _, item := range items {
		gone[item] = true
	}
	d.mu.Lock()
	at := maps.Clone(d.done)
	d.mu.Unlock()
	some := func(want bool) func(io.Writer) error {
		return func(w io.Writer) error {
			for _, item := range slices.SortedFunc(maps.Keys(at), func(a, b string) int { return int(at[a].at - at[b].at) }) {
				if gone[item] != want {
					continue
				}
				for l, err := range wholeLines(io.NewSectionReader(d.file, at[item].at, maxLine)) {
					if err != nil {
						return err
					}
					if _, err := w.Write(l.text); err != nil {
						return err
					}
					break
				}
			}
			return nil
		}
	}
	if err := d.files.write(aside, some(true)); err != nil {
		return err
	}
	if err := d.files.write(resultsName, some(false)); err != nil {
		return err
	}
	return d.reopen()
}

// reopen takes up the file that has replaced the results.
func (d *Dir) reopen() error {
	f, err := d.files.root.OpenFile(resultsName, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.files.path(resultsName), err)
	}
	found, size, err := d.scan(f)
	err = errors.Join(err, d.file.Close())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file, d.size, d.done = f, size, found
	return err
}
