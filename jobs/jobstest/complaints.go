package jobstest

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// complaintsKept is how many of a server's warnings and errors are kept: the last ones.
const complaintsKept = 40

// complaints are a server's warnings and errors, which a test that fails shows: what a client
// is told of a server's trouble is often no more than that there is no answer.
type complaints struct {
	mu   sync.Mutex
	last []string
}

func (c *complaints) Noticef(string, ...any) {}
func (c *complaints) Debugf(string, ...any)  {}
func (c *complaints) Tracef(string, ...any)  {}

func (c *complaints) Warnf(format string, v ...any)  { c.add(format, v) }
func (c *complaints) Errorf(format string, v ...any) { c.add(format, v) }
func (c *complaints) Fatalf(format string, v ...any) { c.add(format, v) }

func (c *complaints) add(format string, v []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, v...))
	c.last = c.last[max(0, len(c.last)-complaintsKept):]
}

// tell writes them to the log of a test.
func (c *complaints) tell(tb testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.last {
		tb.Log("the server said at " + text)
	}
}
