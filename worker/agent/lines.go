package agent

import (
	"bytes"
	"io"
	"sync"
)

// MaxLine is how much of a line is kept. Agents print whole files and images in one
// line, so the limit is far above the size of an event; it bounds the cost of a line
// that never ends.
const MaxLine = 8 << 20

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
	Bytes  []byte // valid until the function that gets the line returns
	Cut    int    // how many bytes are missing at the end
}

// Lines splits what is written to it into lines, and calls a function with each. Of a line
// longer than its limit it passes the beginning, and says how much is missing. It holds nothing
// while a stream is silent at the end of a line: agents are silent for most of their time.
type Lines struct {
	limit int
	each  func(Line)

	mu    sync.Mutex
	line  Line   // that is being written
	kept  []byte // the beginning of it
	ended bool
}

// NewLines returns the lines of a stream.
func NewLines(stream string, limit int, each func(Line)) *Lines {
	return &Lines{limit: limit, each: each, line: Line{Stream: stream}}
}

// Write calls the function with each line that ends in p. After End it returns [io.ErrClosedPipe].
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, io.ErrClosedPipe
	}
	for rest := p; len(rest) > 0; {
		chunk, after, whole := bytes.Cut(rest, newline)
		rest = after
		room := min(len(chunk), l.limit-len(l.kept))
		l.line.Cut += len(chunk) - room
		if whole && len(l.kept) == 0 {
			l.pass(chunk[:room])
			continue
		}
		if l.kept = append(l.kept, chunk[:room]...); whole {
			l.pass(l.kept)
		}
	}
	return len(p), nil
}

// End calls the function with what follows the last newline. When it returns, the function is
// not called any more.
func (l *Lines) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended && len(l.kept) > 0 {
		l.pass(l.kept)
	}
	l.ended = true
}

// pass needs l.mu.
func (l *Lines) pass(line []byte) {
	l.line.N++
	l.line.Bytes = line
	l.each(l.line)
	l.line.Cut, l.line.Bytes, l.kept = 0, nil, l.kept[:0]
	if cap(l.kept) > keepBuffer {
		l.kept = nil
	}
}

var newline = []byte{'\n'}
