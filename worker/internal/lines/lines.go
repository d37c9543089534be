// Package lines splits the output of an agent into lines.
package lines

import (
	"bytes"
	"io"
	"sync"

	"github.com/penstock-run/penstock/worker/agent"
)

// Max is how much of an agent's line is kept. Agents print whole files and images in one
// line, so the limit is far above the size of an event; it bounds the cost of a line
// that never ends.
const Max = 8 << 20

// keepBuffer is the largest buffer that is kept from line to line.
const keepBuffer = 256 << 10

// A Splitter splits what is written to it into lines, and calls a function with each. Of a line
// longer than its limit it passes the beginning, and says how much is missing. It holds nothing
// while a stream is silent at the end of a line: agents are silent for most of their time.
type Splitter struct {
	limit int
	each  func(agent.Line)

	mu    sync.Mutex
	line  agent.Line // that is being written
	kept  []byte     // the beginning of it
	ended bool
}

// New returns a Splitter for a stream.
func New(stream string, limit int, each func(agent.Line)) *Splitter {
	return &Splitter{limit: limit, each: each, line: agent.Line{Stream: stream}}
}

// Write calls the function with each line that ends in p. After End it returns [io.ErrClosedPipe].
func (s *Splitter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, io.ErrClosedPipe
	}
	for rest := p; len(rest) > 0; {
		chunk, after, whole := bytes.Cut(rest, newline)
		rest = after
		room := min(len(chunk), s.limit-len(s.kept))
		s.line.Cut += len(chunk) - room
		if whole && len(s.kept) == 0 {
			s.pass(chunk[:room])
			continue
		}
		if s.kept = append(s.kept, chunk[:room]...); whole {
			s.pass(s.kept)
		}
	}
	return len(p), nil
}

// End calls the function with what follows the last newline. When it returns, the function is
// not called any more.
func (s *Splitter) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) > 0 {
		s.pass(s.kept)
	}
	s.ended = true
}

// pass needs s.mu.
func (s *Splitter) pass(line []byte) {
	s.line.N++
	s.line.Bytes = line
	s.each(s.line)
	s.line.Cut, s.line.Bytes, s.kept = 0, nil, s.kept[:0]
	if cap(s.kept) > keepBuffer {
		s.kept = nil
	}
}

var newline = []byte{'\n'}
