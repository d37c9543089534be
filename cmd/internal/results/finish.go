package results

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
)

// Finish writes batch.json with the batch's state, the predictions and the
// reports, from what is there now. It may be called again and again: after
// an interrupt, at the end, and on a directory that was loaded, unless
// somebody works in it. Why says why a batch was stopped.
func (d *Dir) Finish(state State, why string) error {
	if d.held == nil {
		lock, err := d.lock()
		if err != nil {
			return err
		}
		defer lock.Close() // nothing was written to it since
	}
	totals, err := d.Totals()
	if err != nil {
		return err
	}
	if state == Completed && totals.Missing > 0 {
		state, why = Stopped, cmp.Or(why, fmt.Sprintf("%d of %d items have no result", totals.Missing, totals.Items))
	}
	if bad := totals.Done - totals.Outcomes[jobs.Success] - totals.Outcomes[jobs.Skip]; state == Completed && bad > 0 {
		state, why = Failed, cmp.Or(why, fmt.Sprintf("%d of %d items did not succeed", bad, totals.Items))
	}
	now := time.Now().UTC()
	m := d.Manifest()
	m.State, m.Why, m.Totals, m.Finished = state, why, totals, &now
	if d.held == nil {
		// Somebody looks at a batch that ended before: it has not gone on.
		m.Finished, m.Totals.WallSeconds = d.Manifest().Finished, d.wall
	}
	if state == Running {
		m.Finished = nil
	}
	d.mu.Lock()
	d.manifest = m
	d.mu.Unlock()
	if err := d.predictions(); err != nil {
		return err
	}
	if err := d.reports(); err != nil {
		return err
	}
	// Last, so that a state other than running means: all files are there.
	return d.writeManifest(m)
}

// Totals counts the results that are there now.
func (d *Dir) Totals() (Totals, error) {
	m := d.Manifest()
	t := Totals{Items: len(m.Items), Outcomes: map[jobs.Outcome]int{}, Reasons: map[jobs.Reason]int{}, WallSeconds: d.wall}
	if d.held != nil {
		t.WallSeconds += time.Since(d.opened).Seconds()
	}
	for r, err := range d.Results() {
		if err != nil {
			return t, err
		}
		t.add(r)
	}
	t.Missing = t.Items - t.Done
	return t, nil
}

// predictions writes the two shapes that evaluation tools take: one object
// by instance, and one line for each.
func (d *Dir) predictions() error {
	err := d.write("preds.json", func(w io.Writer) error {
		between := "{\n"
		err := d.eachPrediction(func(id string, one func(io.Writer) error) error {
			if _, err := fmt.Fprintf(w, "%s%q: ", between, id); err != nil {
				return err
			}
			between = ",\n"
			return one(w)
		})
		if err == nil && between == "{\n" {
			_, err = io.WriteString(w, between)
		}
		if err == nil {
			_, err = io.WriteString(w, "\n}\n")
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.write("preds.jsonl", func(w io.Writer) error {
		return d.eachPrediction(func(_ string, one func(io.Writer) error) error {
			if err := one(w); err != nil {
				return err
			}
			_, err := io.WriteString(w, "\n")
			return err
		})
	})
}

// eachPrediction hands on one prediction after the other. Patches are copied
// and not kept: a batch may have more of them than there is memory.
func (d *Dir) eachPrediction(each func(id string, one func(io.Writer) error) error) error {
	agent := d.Manifest().Options["agent"]
	for r, err := range d.Results() {
		if err != nil {
			return err
		}
		err := each(r.ID, func(w io.Writer) error {
			patch, err := d.openRegular(patchName(r.ID))
			if err != nil {
				return err
			}
			defer patch.Close()
			if _, err := io.WriteString(w, `{"model_name_or_path": `); err != nil {
				return err
			}
			if err := jsonString(w, cmp.Or(r.Model, agent, "penstock")); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, `, "instance_id": %q, "model_patch": `, r.ID); err != nil {
				return err
			}
			if err := copyJSONString(w, patch); err != nil {
				return err
			}
			_, err = io.WriteString(w, "}")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copyJSONString copies text as a JSON string. Bytes that are no UTF-8 become
// the replacement character, because JSON has nothing else for them: such a
// patch is whole in its file only.
func copyJSONString(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReaderSize(r, 32<<10), bufio.NewWriterSize(w, 32<<10)
	// Errors of out stick and come back from Flush.
	_ = out.WriteByte('"')
	for {
		// Most of a patch is plain: it is copied in runs.
		ahead, err := in.Peek(max(in.Buffered(), 1))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		plain := bytes.IndexFunc(ahead, func(c rune) bool { return c < 0x20 || c > 0x7e || c == '"' || c == '\\' })
		if plain < 0 {
			plain = len(ahead)
		}
		_, _ = out.Write(ahead[:plain])
		_, _ = in.Discard(plain) // they are in the buffer
		if plain == len(ahead) {
			continue
		}
		c, _, err := in.ReadRune()
		if err != nil {
			return err
		}
		switch {
		case c == '"' || c == '\\':
			_, _ = out.Write([]byte{'\\', byte(c)})
		case c == '\n':
			_, _ = out.WriteString(`\n`)
		case c == '\t':
			_, _ = out.WriteString(`\t`)
		case c < 0x20 || c == 0x7f || c == '\u2028' || c == '\u2029' || c == utf8.RuneError:
			_, _ = fmt.Fprintf(out, `\u%04x`, c)
		default:
			_, _ = out.WriteRune(c)
		}
	}
	_ = out.WriteByte('"')
	return out.Flush()
}
