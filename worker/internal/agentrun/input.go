package agentrun

import (
	"io"
	"sync"
)

// maxInput is how much may wait for an agent that does not read.
const maxInput = 4 << 20

// An input writes to an agent on a goroutine of its own, so that an agent which does
// not read does not block its callers.
type input struct {
	to   io.WriteCloser // set before run
	news signal         // lines, or the end

	mu    sync.Mutex
	lines [][]byte
	size  int
	shut  bool
}

func newInput() *input { return &input{news: newSignal()} }

// put writes lines behind what waits, and reports whether it will: not when
// the input is closed, or too much waits already.
func (in *input) put(lines ...[]byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shut || in.size > maxInput {
		return false
	}
	in.append(lines)
	return true
}

// add appends lines to the queue without a limit: prompts from before the start of the
// agent must not be lost.
func (in *input) add(lines ...[]byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.append(lines)
}

// append needs the lock.
func (in *input) append(lines [][]byte) {
	for _, line := range lines {
		in.lines, in.size = append(in.lines, line), in.size+len(line)
	}
	in.news.set()
}

// full reports whether put would refuse.
func (in *input) full() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.shut || in.size > maxInput
}

// close closes the input behind what waits. Once more does no harm.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.shut = true
	in.news.set()
}

// cut closes it at once, whatever waits.
func (in *input) cut() {
	in.close()
	_ = in.to.Close() // an agent that has gone already is no error
}

// run writes until the input is closed or the agent is done. That an agent
// does not read, or has gone, shows in how it ends.
func (in *input) run(done <-chan struct{}) {
	for {
		lines, shut := in.take()
		for _, line := range lines {
			if _, err := in.to.Write(append(line[:len(line):len(line)], '\n')); err != nil {
				return
			}
		}
		if len(lines) == 0 && shut {
			_ = in.to.Close() // likewise
			return
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-in.news:
		case <-done:
			return
		}
	}
}

func (in *input) take() (lines [][]byte, shut bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	lines = in.lines
	in.lines, in.size = nil, 0
	return lines, in.shut
}
