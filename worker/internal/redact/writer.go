package redact

import "io"

// A Writer passes a stream on without the secrets. It holds back what may be the
// beginning of one; Close writes the rest. It does not close the underlying writer.
type Writer struct {
	r    *Redactor
	to   io.Writer
	held []byte
}

// Writer returns a filter in front of w.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{r: r, to: w} }

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	w.held = append(w.held, p...)
	t := w.r.now()
	// If the next pattern could begin before the end of the data, and be longer than
	// the rest, the decision waits for more data.
	ready := min(len(w.held)-t.longest+1, len(w.held))
	if ready <= 0 {
		return len(p), nil
	}
	if err := w.pass(t, ready); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close passes on what is held back.
func (w *Writer) Close() error { return w.pass(w.r.now(), len(w.held)) }

// pass writes everything that begins before ready, including whole patterns.
func (w *Writer) pass(t *table, ready int) error {
	var out []byte
	done := 0
	for done < ready {
		i, c, ok := t.find(w.held, done, ready)
		out = append(append(out, w.held[done:i]...), c.mark...)
		done = i
		if ok {
			done += len(c.text)
		}
	}
	w.held = append(w.held[:0], w.held[done:]...)
	_, err := w.to.Write(out)
	return err
}
