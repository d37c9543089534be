package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

const (
	resultsName = "results.jsonl"
	maxLine     = 16 << 20
)

// A Dir is a batch's results directory. Its methods may be called by several
// goroutines, except Redo and Close, which are for the beginning and the end.
type Dir struct {
	files files
	held  *os.File // the lock; nil after Load

	// writer is the right to append to results.jsonl. Its whole lines are size
	// bytes long; torn says that there may be more after them.
	writer chan struct{}
	file   *os.File
	size   int64
	torn   bool

	opened time.Time
	wall   float64 // seconds of the runs before this one

	mu       sync.Mutex
	manifest Manifest
	items    map[string]bool // those of the manifest
	done     map[string]done
	adding   map[string]bool
}

// done says where an item's line is.
type done struct {
	at      int64
	job     string
	outcome jobs.Outcome
}

// Open begins a batch in a directory, or continues the one that is there.
// For another batch's directory it returns a [*DifferentError], and for one that
// another process works in a [*LockedError]. It uses only those fields of m that
// describe the batch.
func Open(dir string, m Manifest) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create results directory: %w", err)
	}
	d, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := d.begin(m); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func open(dir string) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open results directory: %w", err)
	}
	d := &Dir{files: files{dir, root}, writer: make(chan struct{}, 1), adding: map[string]bool{}, opened: time.Now()}
	d.writer <- struct{}{}
	return d, nil
}

func (d *Dir) begin(m Manifest) error {
	var err error
	if d.held, err = d.files.lock(); err != nil {
		return err
	}
	old, err := d.readManifest()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if old, err = d.create(m); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if diff := differences(old, m); len(diff) > 0 {
			return &DifferentError{Dir: d.files.dir, What: diff}
		}
	}
	if err := d.files.makeDirs("patches", "logs"); err != nil {
		return err
	}
	if err := d.files.sweep(".", "patches", "logs"); err != nil {
		return err
	}
	if err := d.openResults(old); err != nil {
		return err
	}
	old.State, old.Why, old.Finished, old.Version = Running, "", nil, m.Version
	old.LimitUSD, old.LimitTokens = m.LimitUSD, m.LimitTokens
	d.manifest, d.wall = old, old.Totals.WallSeconds
	return d.writeManifest(old)
}

// create refuses a directory that holds something else: reports should not lie
// between the files of a home directory.
func (d *Dir) create(m Manifest) (Manifest, error) {
	entries, err := fs.ReadDir(d.files.root.FS(), ".")
	if err != nil {
		return m, fmt.Errorf("list %s: %w", d.files.dir, err)
	}
	for _, e := range entries {
		// A program that died after it had written the source leaves that alone.
		if m.Source != nil && e.Name() == sourceName {
			continue
		}
		if e.Name() != lockName && !strings.HasPrefix(e.Name(), tmpPrefix) {
			return m, fmt.Errorf("%s is not empty (%s) and has no %s: choose another directory with --out", d.files.dir, e.Name(), manifestName)
		}
	}
	m.Schema, m.Started, m.Totals, m.Redone, m.Rounds = manifestSchema, time.Now().UTC(), Totals{}, nil, 0
	if m.ID == "" {
		m.ID = jobs.NewID()
	}
	if err := m.check(); err != nil {
		return m, err
	}
	m.State = Running
	if m.Source != nil {
		if err := d.files.write(sourceName, func(w io.Writer) error { _, err := w.Write(m.Source); return err }); err != nil {
			return m, err
		}
	}
	return m, d.writeManifest(m)
}

// openResults reads what is there and cuts off a line without its end.
func (d *Dir) openResults(m Manifest) error {
	if info, err := d.files.root.Lstat(resultsName); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", d.files.path(resultsName))
	}
	f, err := d.files.root.OpenFile(resultsName, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.files.path(resultsName), err)
	}
	d.file, d.items = f, itemSet(m)
	if d.done, d.size, err = d.scan(f); err != nil {
		return err
	}
	if err := f.Truncate(d.size); err != nil {
		return fmt.Errorf("repair %s: %w", d.files.path(resultsName), err)
	}
	return d.files.syncDir(".")
}

func itemSet(m Manifest) map[string]bool {
	items := make(map[string]bool, len(m.Items))
	for _, item := range m.Items {
		items[item.ID] = true
	}
	return items
}

// scan notes where each item's line is, and how long the whole lines are.
func (d *Dir) scan(r io.Reader) (map[string]done, int64, error) {
	found, size := map[string]done{}, int64(0)
	for line, err := range wholeLines(r) {
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", d.files.path(resultsName), err)
		}
		var got jobs.Result
		if err := json.Unmarshal(line.text, &got); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: is not a result: %w", d.files.path(resultsName), line.number, err)
		}
		if !d.items[got.ID] {
			return nil, 0, fmt.Errorf("%s:%d: item %q is not in %s", d.files.path(resultsName), line.number, got.ID, manifestName)
		}
		if _, ok := found[got.ID]; ok {
			return nil, 0, fmt.Errorf("%s:%d: item %q has a result already: remove one of the two lines", d.files.path(resultsName), line.number, got.ID)
		}
		found[got.ID] = done{at: line.at, job: got.Job, outcome: got.Outcome}
		size = line.at + int64(len(line.text))
	}
	return found, size, nil
}

type line struct {
	number int
	at     int64
	text   []byte // with its end
}

// wholeLines yields the lines that have an end; the last one may lack it
// because its writer died.
func wholeLines(r io.Reader) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		var l line
		for {
			l.number++
			l.at += int64(len(l.text))
			l.text = l.text[:0]
			for {
				part, err := in.ReadSlice('\n')
				l.text = append(l.text, part...)
				if err == nil {
					break
				}
				if len(l.text) > maxLine {
					err = fmt.Errorf("line %d is longer than %s", l.number, jobs.Bytes(maxLine))
				}
				if errors.Is(err, bufio.ErrBufferFull) {
					continue
				}
				if !errors.Is(err, io.EOF) {
					yield(line{}, err)
				}
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// BatchID is the id of a batch that a person has named by its results directory, or by its id.
func BatchID(arg string) string {
	dir, err := Load(arg)
	if err != nil {
		return arg
	}
	_ = dir.Close() // nothing was written
	return dir.Manifest().ID
}

// Load opens a directory to look at it, also while a batch runs in it.
func Load(dir string) (*Dir, error) {
	d, err := open(dir)
	if err != nil {
		return nil, err
	}
	if d.manifest, err = d.readManifest(); err == nil {
		d.wall = d.manifest.Totals.WallSeconds
		err = d.load()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is not a results directory: %w", dir, err)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dir) load() error {
	f, err := d.files.openRegular(resultsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // begun a moment ago
	}
	if err != nil {
		return err
	}
	d.file, d.items = f, itemSet(d.manifest)
	d.done, d.size, err = d.scan(f)
	return err
}

// Close gives the directory free. It does not change the batch's state: see
// [Dir.Finish].
func (d *Dir) Close() error {
	var errs []error
	for _, f := range []*os.File{d.file, d.held} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(append(errs, d.files.root.Close())...)
}

// Manifest returns the batch's description and its state on disk.
func (d *Dir) Manifest() Manifest {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.manifest
	m.Items, m.Redone = slices.Clone(m.Items), maps.Clone(m.Redone)
	return m
}

// Key is the item's idempotency key in the pool. It changes when the item is
// done again: the same key would give the same finished job.
func (d *Dir) Key(item string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := d.manifest.ID + "/" + item
	if round := d.manifest.Redone[item]; round > 0 {
		key += fmt.Sprintf("/%d", round)
	}
	return key
}

// Done reports whether the item has a result.
func (d *Dir) Done(item string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.done[item]
	return ok
}

// Missing lists the items without a result, in the batch's order.
func (d *Dir) Missing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var missing []string
	for _, item := range d.manifest.Items {
		if _, ok := d.done[item.ID]; !ok {
			missing = append(missing, item.ID)
		}
	}
	return missing
}

// Results yields the results in the order of the batch's items.
func (d *Dir) Results() iter.Seq2[jobs.Result, error] {
	return func(yield func(jobs.Result, error) bool) {
		for _, item := range d.Manifest().Items {
			d.mu.Lock()
			where, ok := d.done[item.ID]
			d.mu.Unlock()
			if !ok {
				continue
			}
			r, err := d.result(where.at)
			if err != nil {
				err = fmt.Errorf("read %s: item %s: %w", d.files.path(resultsName), item.ID, err)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Source opens what a batch's items were read from, if its directory keeps that.
func Source(d *Dir) (*os.File, error) { return d.files.openRegular(sourceName) }

// Patch opens the patch of an item that has a result.
func (d *Dir) Patch(item string) (*os.File, error) {
	if !d.Done(item) {
		return nil, fmt.Errorf("item %s has no result", item)
	}
	return d.files.openRegular(patchName(item))
}

func (d *Dir) result(at int64) (jobs.Result, error) {
	in := bufio.NewReader(io.NewSectionReader(d.file, at, maxLine))
	text, err := in.ReadBytes('\n')
	if err != nil {
		return jobs.Result{}, err
	}
	var r jobs.Result
	return r, json.Unmarshal(bytes.TrimSpace(text), &r)
}

// All reads all results of a directory.
func All(dir *Dir) ([]jobs.Result, error) {
	var list []jobs.Result
	for r, err := range dir.Results() {
		if err != nil {
			return nil, fmt.Errorf("read the results: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}
