package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/penstock-run/penstock/jobs"
)

// A DuplicateError says that an item has a result already.
type DuplicateError struct {
	Item, Job string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("item %s has the result of job %s already: run the batch with --redo %s to replace it", e.Item, e.Job, e.Item)
}

// Add stores an item's result: its patch, then its log, then its line. Each is
// on disk before the next begins. A second result of the same job changes
// nothing; that of another job is a [*DuplicateError]. The patch may be nil,
// which is an empty patch, and so may the log.
func (d *Dir) Add(ctx context.Context, r jobs.Result, patch io.Reader, log iter.Seq2[jobs.Event, error]) error {
	if d.held == nil {
		return fmt.Errorf("add to %s: it was opened for reading", d.files.dir)
	}
	if err := checkItem(r.ID); err != nil {
		return err
	}
	added, err := d.claim(r)
	if err != nil || added {
		return err
	}
	defer d.release(r.ID)
	if err := d.addPatch(ctx, r, patch); err != nil {
		return err
	}
	if err := d.files.write(logName(r.ID), func(w io.Writer) error { return writeLog(ctx, w, log) }); err != nil {
		return err
	}
	return d.append(r)
}

// claim keeps a second Add of the item out until this one has ended.
func (d *Dir) claim(r jobs.Result) (added bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.items[r.ID] {
		return false, fmt.Errorf("item %q is not in this batch", r.ID)
	}
	if old, ok := d.done[r.ID]; ok {
		if old.job == r.Job {
			return true, nil
		}
		return false, &DuplicateError{Item: r.ID, Job: old.job}
	}
	if d.adding[r.ID] {
		return false, fmt.Errorf("item %s is already being added", r.ID)
	}
	d.adding[r.ID] = true
	return false, nil
}

func (d *Dir) release(item string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.adding, item)
}

func (d *Dir) addPatch(ctx context.Context, r jobs.Result, patch io.Reader) error {
	return d.files.write(patchName(r.ID), func(w io.Writer) error {
		if patch == nil {
			return nil
		}
		sum := sha256.New()
		if err := copyTo(ctx, io.MultiWriter(w, sum), patch); err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); r.PatchSHA256 != "" && got != r.PatchSHA256 {
			return fmt.Errorf("the patch has sha256 %s, the result says %s: it was damaged in transit", got, r.PatchSHA256)
		}
		return nil
	})
}

func writeLog(ctx context.Context, w io.Writer, log iter.Seq2[jobs.Event, error]) error {
	if log == nil {
		return nil
	}
	for event, err := range log {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(event)
		if err != nil {
			return fmt.Errorf("event %d: %w", event.Seq, err)
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// append writes the line that makes the result count.
func (d *Dir) append(r jobs.Result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write result of item %s: %w", r.ID, err)
	}
	if len(text) >= maxLine {
		return fmt.Errorf("write result of item %s: it has %d bytes, at most %d are allowed", r.ID, len(text), maxLine)
	}
	<-d.writer
	defer func() { d.writer <- struct{}{} }()
	at := d.size
	if d.torn {
		if err := d.file.Truncate(at); err != nil {
			return fmt.Errorf("repair %s: %w", d.files.path(resultsName), err)
		}
	}
	// Until it is known to be whole, the line is taken for half of one, as on
	// a full disk: it must not become the beginning of the next.
	d.torn = true
	if _, err = d.file.WriteAt(append(text, '\n'), at); err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.files.path(resultsName), err)
	}
	d.torn, d.size = false, at+int64(len(text))+1
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[r.ID] = done{at: at, job: r.Job, outcome: r.Outcome}
	return nil
}
