package queue_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A move is what may happen next.
type move struct {
	what string // step, lose, die, die after, wait, forget
	of   *modelProc
	long time.Duration
}

func (m move) String() string {
	if m.of == nil {
		return strings.TrimSpace(m.what + " " + m.long.String())
	}
	return m.what + " " + m.of.name
}

// mostMoves bounds one run. One that ends takes a tenth of it.
const mostMoves = 400

// An explorer runs a scenario again and again, each time along a schedule that
// it has not taken yet.
type explorer struct {
	t *testing.T
	s scenario
	// seen has for each state how much of the budget was left when it was met.
	seen map[uint64]int
	runs int
	// strayed counts the runs that did not repeat what was to be varied: where
	// two timers end at the same moment, the runtime chooses.
	strayed int
}

// A path is the choices of a run: at which move which alternative was taken.
// Where none is named, it is the first.
type path []struct{ at, alternative int }

func (p path) at(n int) int {
	for _, c := range p {
		if c.at == n {
			return c.alternative
		}
	}
	return 0
}

// all takes every schedule that differs from the simplest one in at most
// budget places, and returns the first violation with its trace.
func (x *explorer) all() (wrong string, trace []string) {
	for todo := []path{nil}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		from := 0
		if len(p) > 0 {
			from = p[len(p)-1].at + 1
		}
		w := x.run(func(w *modelWorld, n int, moves []move) int {
			if n < from {
				return p.at(n)
			}
			left, key := x.s.budget-len(p), w.state(moves[0])
			if x.seen[key] > left {
				return -1
			}
			x.seen[key] = left + 1
			if left > 0 {
				for i := range moves[1:] {
					todo = append(todo, append(slices.Clone(p), struct{ at, alternative int }{n, i + 1}))
				}
			}
			return 0
		})
		if w.wrong != "" {
			return w.wrong, w.trace
		}
	}
	return "", nil
}

// random takes schedules at random, for so long.
func (x *explorer) random(seed uint64, runs int) (wrong string, trace []string) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range runs {
		rare := 2 + r.IntN(12)
		w := x.run(func(_ *modelWorld, _ int, moves []move) int {
			if r.IntN(rare) > 0 {
				return 0
			}
			return r.IntN(len(moves))
		})
		if w.wrong != "" {
			return w.wrong, w.trace
		}
	}
	return "", nil
}

// run takes one schedule. A choice of -1 ends it: the rest is known.
func (x *explorer) run(choose func(w *modelWorld, n int, moves []move) int) *modelWorld {
	w := &modelWorld{scenario: x.s}
	x.runs++
	synctest.Test(x.t, func(t *testing.T) {
		w.start(t)
		defer w.close()
		var last *modelProc
		for n := 0; ; {
			synctest.Wait()
			if w.check(); w.wrong != "" {
				return
			}
			moves := w.moves(last)
			if len(moves) == 0 {
				if !w.over() && w.sleep() {
					continue
				}
				w.ended()
				return
			}
			chosen := choose(w, n, moves)
			if chosen < 0 {
				return
			}
			if chosen >= len(moves) {
				x.strayed++
				return
			}
			if n++; n > mostMoves {
				w.violate("the job does not end in %d steps", mostMoves)
				return
			}
			w.take(moves[chosen])
			if last = moves[chosen].of; moves[chosen].what != "step" {
				last = nil
			}
		}
	})
	return w
}

// sleep lets time pass until a process asks for something that matters.
func (w *modelWorld) sleep() bool {
	select {
	case <-w.b.arrived:
		return true
	case <-time.After(20 * modelLease):
		return false
	}
}

// moves returns what may happen now, the simplest first: the process that moved
// last goes on. It returns nothing where only time can pass.
func (w *modelWorld) moves(last *modelProc) []move {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	var ready []*modelProc
	for _, p := range w.procs {
		if len(p.waiting) > 0 {
			ready = append(ready, p)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if i := slices.Index(ready, last); i > 0 {
		ready[0], ready[i] = ready[i], ready[0]
	}
	var moves []move
	for _, p := range ready {
		moves = append(moves, move{what: "step", of: p})
	}
	moves = append(moves, w.troubles(ready[0])...)
	if w.kinds != nil {
		moves = slices.DeleteFunc(moves, func(m move) bool { return m.what != "step" && !slices.Contains(w.kinds, m.what) })
	}
	return moves
}

// troubles are what may happen instead of the next step of p.
func (w *modelWorld) troubles(p *modelProc) []move {
	var moves []move
	head := p.waiting[0]
	writes := head.reply != "" && !strings.HasPrefix(head.subject, "$JS.API.STREAM.MSG.GET")
	if writes && w.did("lose") < 2 {
		moves = append(moves, move{what: "lose", of: p})
	}
	if slices.Contains(w.mortal, p.name) {
		moves = append(moves, move{what: "die", of: p})
		if writes {
			moves = append(moves, move{what: "die after", of: p})
		}
	}
	if w.did("wait") < 3 {
		moves = append(moves, move{what: "wait", long: modelLease * 6 / 10}, move{what: "wait", long: modelLease * 11 / 10})
	}
	msgs := w.b.stream("PS_Q_DEFAULT_P1").msgs
	if len(msgs) > 0 && msgs[0].given > 0 && time.Now().Before(msgs[0].again) && w.did("forget") < 1 {
		moves = append(moves, move{what: "forget"})
	}
	return moves
}

// did counts how often something has happened in this run.
func (w *modelWorld) did(what string) int {
	n := 0
	for _, line := range w.trace {
		if strings.HasPrefix(line, what) {
			n++
		}
	}
	return n
}

func (w *modelWorld) take(m move) {
	if m.what == "wait" {
		w.trace = append(w.trace, m.String())
		time.Sleep(m.long)
		return
	}
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	if m.what == "forget" {
		w.b.stream("PS_Q_DEFAULT_P1").msgs[0].again = time.Now()
		w.trace = append(w.trace, "forget the delivery")
		return
	}
	head := m.of.waiting[0]
	m.of.waiting = m.of.waiting[1:]
	told := "does not happen"
	if m.what != "die" {
		told = w.b.do(m.of.modelLink, head, m.what == "step")
	}
	w.trace = append(w.trace, fmt.Sprintf("%s: %s %.60s: %s", m, modelPlain(head.subject), head.data, told))
	if strings.HasPrefix(m.what, "die") {
		w.b.mu.Unlock()
		m.of.die()
		w.b.mu.Lock()
	}
}

// state is a sum over all that what follows depends on; next is what follows
// where nothing else is chosen.
func (w *modelWorld) state(next move) uint64 {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, next, time.Now().UnixNano(), w.did("lose"), w.did("wait"), w.did("forget"))
	for _, name := range []string{"KV_ps_jobs", "PS_Q_DEFAULT_P1", "PS_SCHED"} {
		for _, m := range w.b.stream(name).msgs {
			fmt.Fprint(h, m.subject, m.seq, m.at.UnixNano(), m.given, m.again.UnixNano())
			h.Write(m.data)
		}
	}
	for _, p := range w.procs {
		fmt.Fprint(h, p.history, p.dead.Load(), p.live.Load(), p.busy.Load(), p.gone.Load(), len(p.waiting))
		for _, m := range p.waiting {
			fmt.Fprint(h, modelPlain(m.subject))
			h.Write(m.data)
		}
	}
	return h.Sum64()
}
