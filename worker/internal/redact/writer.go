package redact

import "io"

// A Writer passes a stream on without the secrets. It holds back what may be
// the beginning of one; Close passes that on. It does not close what is below.
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
	// Where the next pattern could still begin before the end of what came,
	// and be longer than it, nothing is decided yet.
	ready := min(len(w.held)-w.r.longest+1, len(w.held))
	if ready <= 0 {
		return len(p), nil
	}
	if err := w.pass(ready); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close passes on what is held back.
func (w *Writer) Close() error { return w.pass(len(w.held)) }

// pass writes what begins before ready, whole patterns included.
func (w *Writer) pass(ready int) error {
	var out []byte
	done := 0
	for done < ready {
		i, c, ok := w.r.find(w.held, done, ready)
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
