package schedule_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/schedule"
)

func job(n int, lane, owner, batch, agent string) jobs.Record {
	return jobs.Record{
		ID: fmt.Sprintf("%08d", n), Class: "default", Queue: "default", Lane: lane, Batch: batch, Agent: agent,
		Labels: map[string]string{schedule.OwnerLabel: owner},
	}
}

func all(jobs.Record) int { return math.MaxInt }

// order is the order in which a plan makes jobs ready, by what it was asked to show.
func order(p *schedule.Plan, show func(jobs.Record) string) string {
	var list []string
	for _, rec := range p.Next(all) {
		list = append(list, show(rec))
	}
	return strings.Join(list, " ")
}

func TestOwnersAndBatchesTakeTurns(t *testing.T) {
	p := schedule.New(nil)
	n := 0
	add := func(times int, owner, batch string) {
		for range times {
			n++
			p.Set(job(n, "p1", owner, batch, ""), schedule.Waiting)
		}
	}
	add(5, "ann", "x")
	add(2, "ann", "y")
	add(3, "bob", "")
	add(1, "", "z")
	got := order(p, func(r jobs.Record) string { return r.Labels[schedule.OwnerLabel] + "/" + r.Batch })
	if want := "ann/x bob/ /z ann/y bob/ ann/x bob/ ann/y ann/x ann/x ann/x"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestABatchIsInTheOrderOfSubmission(t *testing.T) {
	p := schedule.New(schedule.Caps{{Key: "agent:slow", Most: 1}})
	for _, n := range []int{3, 1, 2} {
		p.Set(job(n, "p1", "", "b", "fast"), schedule.Waiting)
	}
	p.Set(job(0, "p1", "", "b", "slow"), schedule.Waiting)
	p.Set(job(4, "p1", "", "b", "slow"), schedule.Waiting)
	id := func(r jobs.Record) string { return r.ID[7:] }
	if got := order(p, id); got != "0 1 2 3" {
		t.Errorf("got %s, want 0 1 2 3, and 4 held back by its cap", got)
	}
	p.Set(job(0, "p1", "", "b", "slow"), schedule.Running)
	if got := order(p, id); got != "" {
		t.Errorf("got %s, want nothing: one runs", got)
	}
	p.Remove(job(0, "p1", "", "b", "slow").ID)
	if got := order(p, id); got != "4" {
		t.Errorf("got %s, want 4", got)
	}
}

func TestALaneHasOnlySoManyReady(t *testing.T) {
	p := schedule.New(nil)
	for n := range 10 {
		p.Set(job(n, []string{"p0", "p2"}[n%2], "", "", ""), schedule.Waiting)
	}
	three := func(jobs.Record) int { return 3 }
	if got := len(p.Next(three)); got != 6 {
		t.Errorf("%d are ready, want 3 in each of two lanes", got)
	}
	p.Set(job(0, "p0", "", "", ""), schedule.Running)
	p.Remove(job(1, "p2", "", "", "").ID)
	if got := p.Next(three); len(got) != 2 || got[0].Lane != "p0" || got[1].Lane != "p2" {
		t.Errorf("got %v, want one for each that has gone", got)
	}
}

// A world holds what a plan is given, and what it has answered, written down
// without any order.
type world struct {
	plan   *schedule.Plan
	caps   schedule.Caps
	jobs   map[string]jobs.Record
	states map[string]schedule.State
	// since has the owners, and the batches of an owner, that had a turn while
	// another one waited for its own. The key is the one that waits.
	since map[string]map[string]bool
}

func (w *world) used(rec jobs.Record, key string) (n int) {
	for id, state := range w.states {
		other := w.jobs[id]
		counts := state == schedule.Running || state == schedule.Ready && other.Lane == rec.Lane && other.Class == rec.Class
		if counts && slices.ContainsFunc(w.caps.Of(other), func(c schedule.Cap) bool { return c.Key == key }) {
			n++
		}
	}
	return n
}

func (w *world) admissible(rec jobs.Record) bool {
	for _, c := range w.caps.Of(rec) {
		if w.used(rec, c.Key) >= c.Most {
			return false
		}
	}
	return true
}

func (w *world) ready(lane string) (n int) {
	for id, state := range w.states {
		if state == schedule.Ready && w.jobs[id].Lane == lane {
			n++
		}
	}
	return n
}

// next asks for one job at a time in each lane, and holds each against what
// was promised.
func (w *world) next(t *testing.T, depth int) {
	t.Helper()
	for _, rec := range w.plan.Next(func(jobs.Record) int { return depth }) {
		if w.states[rec.ID] != schedule.Waiting || !w.admissible(w.jobs[rec.ID]) || w.ready(rec.Lane) >= depth {
			t.Fatalf("%v is made ready, is %v, %d are", rec, w.states[rec.ID], w.ready(rec.Lane))
		}
		w.fair(t, w.jobs[rec.ID])
		w.states[rec.ID] = schedule.Ready
	}
	for id, state := range w.states {
		if rec := w.jobs[id]; state == schedule.Waiting && w.ready(rec.Lane) < depth && w.admissible(rec) {
			t.Fatalf("%v could be ready and is not", rec)
		}
	}
}

// fair checks that no owner or batch has a second turn while another one waits
// for its first.
func (w *world) fair(t *testing.T, rec jobs.Record) {
	t.Helper()
	owner, batch := rec.Labels[schedule.OwnerLabel], rec.Batch
	waits := map[string]bool{}
	for id, state := range w.states {
		other := w.jobs[id]
		if state != schedule.Waiting || other.Lane != rec.Lane || !w.admissible(other) {
			continue
		}
		whose := other.Labels[schedule.OwnerLabel]
		if whose != owner {
			waits[rec.Lane+" "+whose] = true
		} else if other.Batch != batch {
			waits[rec.Lane+" "+whose+" "+other.Batch] = true
		} else if other.ID < rec.ID {
			t.Fatalf("%v is made ready before %v", rec, other)
		}
	}
	for who := range w.since {
		if lane, _, _ := strings.Cut(who, " "); lane == rec.Lane && !waits[who] && !(strings.Count(who, " ") == 2 && !strings.HasPrefix(who, rec.Lane+" "+owner+" ")) {
			delete(w.since, who)
		}
	}
	for who := range waits {
		turn := owner
		if strings.Count(who, " ") == 2 {
			turn = batch
		}
		if w.since[who] == nil {
			w.since[who] = map[string]bool{}
		}
		if w.since[who][turn] {
			t.Fatalf("%q has a second turn, and %q waits", turn, who)
		}
		w.since[who][turn] = true
	}
}

// In random worlds: no lane has more ready than allowed and no cap is exceeded;
// jobs that can be ready are; no owner has a second turn before others had their
// first; and a batch keeps its order.
func TestAnyPlanIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 40 {
		w := &world{jobs: map[string]jobs.Record{}, states: map[string]schedule.State{}, since: map[string]map[string]bool{}}
		if r.IntN(2) == 0 {
			w.caps = schedule.Caps{{Key: "agent:*", Most: 1 + r.IntN(3)}, {Key: "batch:x", Most: 1 + r.IntN(3)}}
		}
		w.plan = schedule.New(w.caps)
		depth, n := 1+r.IntN(4), 0
		for range 80 {
			switch ids := slices.Sorted(maps.Keys(w.jobs)); {
			case len(ids) == 0 || r.IntN(2) == 0:
				n++
				rec := job(n, pick("p0", "p1"), pick("", "ann", "bob"), pick("", "x", "y"), pick("claude", "codex"))
				w.jobs[rec.ID], w.states[rec.ID] = rec, schedule.Waiting
				w.plan.Set(rec, schedule.Waiting)
			case r.IntN(3) == 0:
				id := ids[r.IntN(len(ids))]
				w.plan.Remove(id)
				delete(w.jobs, id)
				delete(w.states, id)
			default: // it is claimed, or comes back
				id := ids[r.IntN(len(ids))]
				w.states[id] = schedule.State(r.IntN(3))
				w.plan.Set(w.jobs[id], w.states[id])
			}
			// This changes which jobs can be ready: turns are counted anew.
			clear(w.since)
			w.next(t, depth)
		}
		// Then it is left alone but for claims, and turns are counted throughout.
		for range 40 {
			for id, state := range w.states {
				if state == schedule.Ready && r.IntN(2) == 0 {
					delete(w.jobs, id)
					delete(w.states, id)
					w.plan.Remove(id)
				}
			}
			w.next(t, depth)
		}
	}
}

// Many jobs are kept in little memory, and the next ones are found at once.
func TestManyJobs(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	owners := []string{"ann", "bob", "cat", "dan"}
	began := time.Now()
	p := schedule.New(schedule.Caps{{Key: "batch:*", Most: 50}})
	const n = 100_000
	var mine []string
	for i := range 100 {
		mine = append(mine, fmt.Sprint("batch", i))
	}
	for i := range n {
		rec := job(i, "p1", owners[i%len(owners)], mine[i%len(mine)], "claude")
		rec.ID = fmt.Sprintf("01a1fa91-97d5-73b8-babf-%012d", i)
		p.Set(rec, schedule.Waiting)
	}
	filled := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	began = time.Now()
	const picks = 1000
	for i := range picks {
		next := p.Next(func(jobs.Record) int { return 1 })
		if len(next) != 1 {
			t.Fatalf("pick %d: %d jobs", i, len(next))
		}
		p.Set(next[0], schedule.Running)
		p.Remove(next[0].ID)
	}
	t.Logf("%d jobs: %d bytes each, filled in %s, %s a pick", n, each, filled, time.Since(began)/picks)
	if each > 400 {
		t.Errorf("%d bytes for each job", each)
	}
}
