package governor

import (
	"math"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
)

// How a line adapts.
const (
	firstLimit = 8    // calls at once, before anything is known
	mostLimit  = 4096 // calls at once, whatever answers say
	leastRate  = 1.0 / 600
	longHold   = 30 * time.Second   // after which calls begin one by one again
	mostHold   = ratelimit.MostHold // an answer that asks for more is not believed
	window     = 10 * time.Second   // over which the first rate is measured
	fewCalls   = 8                  // too few to measure a rate by
	// mostCut bounds what one refusal costs: it may be for the calls of other workers, and one
	// with few calls that lost half each time would not come back.
	mostCut = 0.85
	// mostRow is how many refusals in a row reduce the rate. A worker with few calls of many may have to reduce it
	// several times; where nothing is accepted at all, less says nothing.
	mostRow = 8
	// tendEvery is between two steps towards a share of what all workers have.
	tendEvery = 4 * time.Second
)

// A Line is the way to one model with one key. It says when the next call may begin. It
// has no clock and no lock: the caller brings both.
//
// Two numbers adapt. Refusals for the rate reduce the calls a second: a little where
// they were long accepted, else towards what was accepted since the refusal before. Overload halves the calls at once.
// Both grow with each accepted call, slowly near to where they were refused. What the
// headers of answers say is left bounds both. What other workers tell moves the first one, see [Line.Tend].
type Line struct {
	limit, threshold float64 // calls at once; up to threshold limit grows by one with each call
	running          int

	rate            float64 // calls a second when it was last refused; 0: it never was
	started, waited int     // calls that began since then, and those of them that had to wait
	since           time.Time
	next            time.Time // when the pace allows the next call
	begun, before   int       // calls that began in the present window, and in the one before
	turned          time.Time // when the present window began

	tended time.Time // when the pace last moved towards a share

	until    time.Time // no call begins before
	row      int       // refusals for the rate since the last accepted call, of calls that came one after the other
	failures int       // refusals since the last accepted call
	changed  time.Time // when a number last fell
	rooms    map[string]*room
}

// NewLine returns a line of which nothing is known yet.
func NewLine() *Line {
	return &Line{limit: firstLimit, threshold: mostLimit, rooms: map[string]*room{}}
}

// Until returns when a refusal allows calls again; a time that has passed: now.
func (l *Line) Until() time.Time { return l.until }

// Hold lets no call begin before a time, as another worker has heard.
func (l *Line) Hold(now, until time.Time) {
	if latest := now.Add(mostHold); until.After(latest) {
		until = latest
	}
	if until.After(l.until) {
		l.until = until
		l.slow(now)
	}
}

// slow lets calls begin one by one after a long hold: those of all workers begin then.
func (l *Line) slow(now time.Time) {
	if l.until.Sub(now) >= longHold {
		l.threshold, l.limit = max(1, l.limit/2), 1
	}
}

// Full reports whether as many calls are under way as may be.
func (l *Line) Full() bool { return float64(l.running) >= math.Floor(l.limit) }

// Wait returns how long it is until the next call may begin, besides those under way: zero
// is at once.
func (l *Line) Wait(now time.Time) time.Duration {
	wait := l.until.Sub(now)
	if l.rate > 0 {
		wait = max(wait, l.next.Sub(now))
	}
	for _, r := range l.rooms {
		wait = max(wait, r.wait(now))
	}
	return min(max(wait, 0), mostHold)
}

// later is how much later than the next call one begins that has so many before it, by the pace.
func (l *Line) later(before int) time.Duration {
	rate := l.pace()
	if rate == 0 {
		return 0
	}
	return time.Duration(min(float64(before)/rate, mostHold.Seconds()) * float64(time.Second))
}

// left is the share of the limits of the provider that is left, by the headers of answers: from a
// hundredth to all.
func (l *Line) left(now time.Time) float64 {
	share := 1.0
	for _, r := range l.rooms {
		back := 1.0
		if r.Full > 0 {
			back = min(now.Sub(r.at).Seconds()/r.Full.Seconds(), 1)
		}
		share = min(share, (r.Left-r.used+back*(r.Limit-r.Left))/r.Limit)
	}
	return max(share, 0.01)
}

// Tend moves the pace a step towards a share of what all workers have together, if it is far from that. The steps up
// are as large as those down, so that the sum stays: it is the answers that say how much there is.
func (l *Line) Tend(now time.Time, share float64) {
	pace := l.pace()
	if pace == 0 || now.Sub(l.tended) < tendEvery {
		return
	}
	l.tended = now
	switch far := share / pace; {
	case far > 1.25:
		l.rate *= 1.15
	case far < 0.8:
		l.rate = max(l.rate/1.15, leastRate)
	}
}

// Begin counts a call in. Waited: it could not begin when it came.
func (l *Line) Begin(now time.Time, waited bool) {
	if l.since.IsZero() {
		l.since = now
	}
	l.running++
	l.turn(now)
	l.begun++
	l.started++
	if waited {
		l.waited++
	}
	if rate := l.pace(); rate > 0 {
		gap := time.Duration(float64(time.Second) / rate)
		// A timer that was late is made up for, by a call or a quarter of a second.
		l.next = later(l.next, now.Add(-max(gap, time.Second/4))).Add(gap)
	}
	for _, r := range l.rooms {
		r.take()
	}
}

// pace is how many calls may begin in a second; 0: as many as there are. It grows with the calls that
// begin, so slowly near to where it was refused that the next refusal is the fortieth call or twenty seconds
// later, and faster beyond.
func (l *Line) pace() float64 {
	n, near := float64(l.waited), max(40, 20*l.rate)
	return l.rate * (1 + 2*n/(near*near) + math.Pow(n/(3*near), 3))
}

// End counts a call out that began at a time, and learns from its answer.
func (l *Line) End(now, began time.Time, a Answer) {
	l.running = max(l.running-1, 0)
	switch a.Kind {
	case Limited:
		l.refused(now, began, a.Wait)
		l.slower(now, began)
	case Overloaded:
		l.refused(now, began, a.Wait)
		if began.After(l.changed) || l.changed.IsZero() {
			l.threshold = max(1, l.limit/2)
			l.limit, l.changed = l.threshold, now
		}
	case Served:
		l.failures, l.row = 0, 0
		if l.limit < l.threshold {
			l.limit++
		} else {
			l.limit += 1 / l.limit
		}
		l.limit = min(l.limit, mostLimit)
	}
}

// refused holds the calls: as long as the answer asks, else longer with each refusal.
func (l *Line) refused(now, began time.Time, wait time.Duration) {
	if wait <= 0 {
		if began.Before(l.changed) {
			return // one of many that were refused together
		}
		l.failures++
		wait = min(time.Second<<min(l.failures-1, 6), time.Minute)
	}
	if until := now.Add(min(wait, mostHold)); until.After(l.until) {
		l.until = until
		l.slow(now)
	}
}

// slower sets the pace to what was accepted since the last refusal.
func (l *Line) slower(now, began time.Time) {
	if began.Before(l.changed) {
		return // it began before the pace was changed, and says nothing of the new one
	}
	is, took := l.pace(), max(now.Sub(l.since), time.Millisecond)
	l.row++
	switch {
	case is == 0:
		l.rate = max(float64(l.recent(now))/max(min(took, window), time.Second).Seconds(), 1)
	case l.started >= fewCalls && took >= window:
		l.rate = 0.93 * is // it grew slowly, so it is not far beyond
	case l.started >= fewCalls:
		l.rate = min(max(float64(l.started)/took.Seconds(), mostCut*is), 0.93*is)
	case l.row <= mostRow:
		l.rate = mostCut * is
	default: // the hold is what grows: nothing may be accepted for another reason
		l.rate = is
	}
	l.rate = max(l.rate, leastRate)
	l.started, l.waited, l.since, l.changed = 0, 0, now, now
	// To wait longer than needed says nothing of the rate, and is not made up for.
	l.since, l.next = later(now, l.until), later(l.next, l.until)
}

// turn begins another window when the present one is over.
func (l *Line) turn(now time.Time) {
	switch past := now.Sub(l.turned); {
	case past >= 2*window:
		l.turned, l.before, l.begun = now, 0, 0
	case past >= window:
		l.turned, l.before, l.begun = l.turned.Add(window), l.begun, 0
	}
}

// recent is how many calls began in the last window, roughly.
func (l *Line) recent(now time.Time) int {
	l.turn(now)
	rest := 1 - now.Sub(l.turned).Seconds()/window.Seconds()
	return l.begun + int(float64(l.before)*rest)
}

// A room is what the headers of the last answer said is left, and what was used since.
type room struct {
	Room
	at   time.Time
	used float64
	need float64 // of one call
}

// Learn takes over what the head of an answer says is left.
func (l *Line) Learn(now time.Time, said Room) {
	if said.Limit <= 0 || said.Full < 0 || said.Left < 0 || said.Left > said.Limit || said.Full > mostHold {
		return // not to be believed
	}
	r := l.rooms[said.What]
	if r == nil {
		if len(l.rooms) >= 8 {
			return
		}
		r = &room{}
		l.rooms[said.What] = r
	}
	r.need = 1
	if said.What != requests {
		r.need = said.Limit / 50 // how many tokens a call takes is not known before
	}
	r.Room, r.at, r.used = said, now, 0 // calls under way are in it
}

func (r *room) take() { r.used += r.need }

// wait is how long it takes until there is room for a call. It fills up evenly until it is
// full.
func (r *room) wait(now time.Time) time.Duration {
	missing := r.need - (r.Left - r.used)
	if missing <= 0 || r.Full <= 0 || now.Sub(r.at) >= r.Full {
		return 0
	}
	perSecond := (r.Limit - r.Left) / r.Full.Seconds()
	if perSecond <= 0 {
		return 0
	}
	ready := time.Duration(missing / perSecond * float64(time.Second))
	return max(min(ready, r.Full)-now.Sub(r.at), 0)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
