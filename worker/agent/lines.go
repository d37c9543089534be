package agent

import (
	"bufio"
	"errors"
	"io"
)

// MaxLine is how much of a line is kept. Agents print whole files and images in one
// line, so the limit is far above the size of an event; it bounds the cost of a line
// that never ends.
const MaxLine = 8 << 20

// readBuffer is small: agents are silent for most of their time, and there are two streams of each.
const readBuffer = 8 << 10

// keepBuffer is the largest buffer that is kept from line to line.
const keepBuffer = 256 << 10

// The two streams that an agent writes to.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// A Line is one line of output, without its newline.
type Line struct {
	Stream string
	N      int    // the line's number in its stream, from 1
	Bytes  []byte // valid until the next line is read
	Cut    int    // how many bytes are missing at the end
}

// ReadLines calls fn for every line of r. Of a line longer than limit it passes the
// beginning, and says how much is missing. It returns nil at the end of r, or the first
// error of r or fn. It passes what was read before an error of r to fn first.
func ReadLines(r io.Reader, stream string, limit int, fn func(Line) error) error {
	in := bufio.NewReaderSize(r, readBuffer)
	line := Line{Stream: stream}
	var kept []byte
	for {
		chunk, err := in.ReadSlice('\n')
		whole := err == nil
		if whole {
			chunk = chunk[:len(chunk)-1]
		}
		room := min(len(chunk), limit-len(kept))
		kept = append(kept, chunk[:room]...)
		line.Cut += len(chunk) - room
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case whole || len(kept) > 0:
			line.N++
			line.Bytes = kept
			if stop := fn(line); stop != nil {
				return stop
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line.Cut, kept = 0, kept[:0]
		if cap(kept) > keepBuffer {
			kept = nil
		}
	}
}
