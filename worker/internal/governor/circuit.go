package governor

import (
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
)

// How long a key that is refused is left alone: at first, at most, and while one call
// tries it.
const (
	firstPause = time.Minute
	mostPause  = 10 * time.Minute
	probeTime  = time.Minute
)

// A circuit is open while the provider refuses the key. Then no call passes, but for those
// of the one job that tries, from time to time, whether the key is accepted again.
type circuit struct {
	refused *ratelimit.Refusal
	changed time.Time
	probing time.Time // until then calls pass, to try the key
}

// blocks returns until when no call may pass; zero: one may.
func (c *circuit) blocks(now time.Time) time.Time {
	if c.refused == nil || now.Before(c.probing) {
		return time.Time{}
	}
	return c.refused.Retry
}

// admit lets a job begin, or says until when none may. The first job after that time tries
// the key; the others wait for it.
func (c *circuit) admit(now time.Time) (until time.Time, probe bool) {
	switch {
	case c.refused == nil:
		return time.Time{}, false
	case now.Before(c.refused.Retry):
		return c.refused.Retry, false
	}
	next := *c.refused
	next.Retry = now.Add(probeTime)
	c.refused, c.changed, c.probing = &next, now, now.Add(probeTime)
	return time.Time{}, true
}

// open notes that the provider has refused the key.
func (c *circuit) open(now time.Time, message string) {
	next := ratelimit.Refusal{Since: now, Message: plain(message)}
	if c.refused != nil {
		next.Since, next.Tries = c.refused.Since, c.refused.Tries
		if now.Before(c.refused.Retry) && !now.Before(c.probing) {
			return // known: calls that began together are refused together
		}
		next.Tries++
	}
	next.Retry = now.Add(min(firstPause<<min(next.Tries, 4), mostPause))
	c.refused, c.changed, c.probing = &next, now, time.Time{}
}

// close notes that the provider has accepted the key, and reports whether that is news.
func (c *circuit) close(now time.Time) bool {
	if c.refused == nil {
		return false
	}
	c.refused, c.changed, c.probing = nil, now, time.Time{}
	return true
}

// adopt takes over what another worker has found out later.
func (c *circuit) adopt(s ratelimit.State) {
	if s.Changed.After(c.changed) {
		c.refused, c.changed, c.probing = s.Refused, s.Changed, time.Time{}
	}
}

// plain makes a short line of printable characters.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}
