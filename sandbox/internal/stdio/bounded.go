package stdio

import "bytes"

// A Bounded buffer keeps the beginning of what is written to it.
type Bounded struct {
	Left    int // how many bytes more it keeps
	Dropped int // how many it has not kept

	b bytes.Buffer
}

// Write never fails.
func (w *Bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.Left)
	w.b.Write(p[:n])
	w.Left -= n
	w.Dropped += len(p) - n
	return len(p), nil
}

// Bytes is what was kept.
func (w *Bounded) Bytes() []byte { return w.b.Bytes() }
