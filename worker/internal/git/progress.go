package git

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A progress is the progress of one phase of a git command.
type progress struct {
	phase       string // git's own name: "Receiving objects"
	percent     int
	done, total int64
}

// progressLine is one line of git's progress, or of its remote's.
var progressLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:remote: )?([A-Z][A-Za-z ]{2,40}): +([0-9]{1,3})% \(([0-9]{1,18})/([0-9]{1,18})\)`)
})

func parseProgress(line string) (progress, bool) {
	found := progressLine().FindStringSubmatch(line)
	if found == nil {
		return progress{}, false
	}
	p := progress{phase: found[1]}
	p.percent, _ = strconv.Atoi(found[2])
	p.done, _ = strconv.ParseInt(found[3], 10, 64)
	p.total, _ = strconv.ParseInt(found[4], 10, 64)
	return p, p.percent <= 100
}

// progressFilter reports progress, which git ends by a carriage return, and passes on
// the rest of git's output.
type progressFilter struct {
	tell func(phase string, percent int, done, total int64)
	rest io.Writer
	line []byte
}

// maxProgressLine is far longer than any line of git; a remote may write anything.
const maxProgressLine = 4 << 10

func (f *progressFilter) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		end := bytes.IndexAny(left, "\r\n")
		if end < 0 && len(f.line)+len(left) < maxProgressLine {
			f.line = append(f.line, left...)
			break
		}
		cut := end + 1
		if end < 0 {
			cut = len(left)
		}
		f.line = append(f.line, left[:cut]...)
		left = left[cut:]
		f.flush()
	}
	return len(p), nil
}

// flush ends a line, and when git ends the rest of the last line.
func (f *progressFilter) flush() {
	line := f.line
	f.line = f.line[:0]
	if p, ok := parseProgress(strings.TrimSpace(string(line))); ok && f.tell != nil {
		f.tell(p.phase, p.percent, p.done, p.total)
	} else if len(line) > 0 {
		_, _ = f.rest.Write(line) // the tail accepts everything
	}
}
