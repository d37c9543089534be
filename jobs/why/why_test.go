package why_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/why"
)

// A sim is a pool with nothing but what decides which job is claimed next. It
// knows nothing of constraints and their order: it claims.
type sim struct {
	now     time.Time
	lease   time.Duration
	queues  map[string]*why.Pause
	batches map[string]*why.Pause
	jobs    []simJob
	workers []why.Worker
	// dispatcher: one moves jobs that are due, and admits jobs that are in no lane.
	dispatcher bool
	caps       map[string]int // by label
	phase      []int          // by worker: claims that it has made
}

type simJob struct {
	rec     jobs.Record
	written time.Time
	seq     int // its place in the lane
	missing bool
}

// position is where a job is in its lane. A job that is not there yet is behind all
// others.
func (j simJob) position() int {
	if j.rec.State == jobs.Pending && j.missing {
		return j.seq + 1000
	}
	return j.seq
}

// tick lets everything happen that can happen now, and returns the jobs that
// are claimed.
func (s *sim) tick() map[string]bool {
	var line []simJob
	for i, j := range s.jobs {
		r := j.rec
		takenOver := r.State == jobs.Executing && s.now.Sub(j.written) >= s.lease
		due := (r.State == jobs.Delayed || r.Asking()) && s.dispatcher && r.NotBefore != nil && !r.NotBefore.After(s.now)
		back := r.State == jobs.Waiting && !r.Asking() && s.dispatcher && len(s.facts(i).Open) == 0
		if r.State == jobs.Pending && j.missing && !s.dispatcher {
			continue
		}
		if r.State != jobs.Pending && !takenOver && !due && !back {
			continue
		}
		if s.queues[r.Queue] != nil || s.batches[r.Batch] != nil {
			continue
		}
		if takenOver { // the broker delivers again before it delivers more
			j.seq -= len(s.jobs)
		}
		if due || back {
			j.rec.Lane = "p3"
		}
		line = append(line, j)
	}
	slices.SortFunc(line, func(a, b simJob) int {
		return cmp.Or(cmp.Compare(a.rec.Lane, b.rec.Lane), cmp.Compare(a.position(), b.position()))
	})
	claimed, running, taken := map[string]bool{}, s.running(), make([]int, len(s.workers))
	for _, more := range [][]string{nil, {"p3"}} { // what comes, when all others have had the choice
		for n, w := range s.workers {
			for ; w.Closed == "" && taken[n] < w.Slots-w.Busy; taken[n]++ {
				i := s.pick(w, slices.Concat(simLanes(s.phase[n]+taken[n]), more), line, claimed, running)
				if i < 0 {
					break
				}
				claimed[line[i].rec.ID] = true
				if line[i].rec.State != jobs.Executing {
					running[line[i].rec.Agent]++
				}
			}
		}
	}
	return claimed
}

// pick is the job that a worker claims next; -1: none.
func (s *sim) pick(w why.Worker, lanes []string, line []simJob, claimed map[string]bool, running map[string]int) int {
	for _, lane := range lanes {
		i := slices.IndexFunc(line, func(j simJob) bool {
			free := j.rec.State == jobs.Executing || s.room(j.rec, running) > 0
			return j.rec.Lane == lane && !claimed[j.rec.ID] && slices.Contains(w.Queues, j.rec.Queue) && able(w, j.rec) && free
		})
		if i >= 0 {
			return i
		}
	}
	return -1
}

// simLanes are the lanes in which a worker that has made so many claims looks
// for the next: of 16 in a row two begin at the middle lane and one at the last.
func simLanes(claims int) []string {
	switch claims % 16 {
	case 3, 11:
		return []string{"p1", "p0", "p2"}
	case 15:
		return []string{"p2", "p0", "p1"}
	}
	return []string{"p0", "p1", "p2"}
}

// running counts the jobs that hold a permit, by agent. That one's worker is
// lost does not change it.
func (s *sim) running() map[string]int {
	n := map[string]int{}
	for _, j := range s.jobs {
		if j.rec.State == jobs.Executing {
			n[j.rec.Agent]++
		}
	}
	return n
}

// room is how many more jobs like one may run.
func (s *sim) room(rec jobs.Record, running map[string]int) int {
	if most, capped := s.caps[rec.Agent]; capped {
		return most - running[rec.Agent]
	}
	return len(s.jobs)
}

// able reports whether a worker has all that a job needs.
func able(w why.Worker, rec jobs.Record) bool {
	for _, need := range rec.Needs {
		if !slices.Contains(w.Labels, need) {
			return false
		}
	}
	return true
}

// facts are what the pool would know of a job.
func (s *sim) facts(i int) why.Facts {
	me := s.jobs[i]
	f := why.Facts{
		Now: s.now, Record: me.rec, Written: me.written, Lease: s.lease, Workers: s.workers,
		Stranded: me.rec.State == jobs.Pending && me.missing && !s.dispatcher,
		Queue:    s.queues[me.rec.Queue], Batch: s.batches[me.rec.Batch],
	}
	running, before := s.running(), 0
	for _, j := range s.jobs {
		lost := j.rec.State == jobs.Executing && s.now.Sub(j.written) >= s.lease
		ready := j.rec.State == jobs.Pending && (!j.missing || s.dispatcher) && s.room(j.rec, running) > 0 || lost
		if !ready || s.batches[j.rec.Batch] != nil || s.queues[j.rec.Queue] != nil || j.seq == me.seq {
			continue
		}
		alike := j.rec.Queue == me.rec.Queue && slices.Equal(j.rec.Needs, me.rec.Needs)
		both := slices.ContainsFunc(s.workers, func(w why.Worker) bool { return w.Serves(j.rec) && w.Serves(me.rec) })
		switch {
		case alike && (j.rec.Lane < me.rec.Lane || j.rec.Lane == me.rec.Lane && (j.position() < me.position() || lost)):
			f.Ahead++
		case j.rec.Lane > me.rec.Lane && both:
			f.Below++
		case !alike && j.rec.Lane <= me.rec.Lane && both:
			f.Rivals++
		}
		behind := alike && j.rec.Lane == me.rec.Lane && j.position() > me.position()
		if !lost && !behind && j.rec.Agent == me.rec.Agent {
			before++
		}
	}
	if most, capped := s.caps[me.rec.Agent]; capped {
		f.Caps = []why.Cap{{Key: "agent:" + me.rec.Agent, Most: most, Running: running[me.rec.Agent], Before: before}}
	}
	for _, on := range me.rec.DependsOn {
		for _, j := range s.jobs {
			if j.rec.ID == on && j.rec.State != jobs.Finished {
				f.Open = append(f.Open, j.rec)
			}
		}
	}
	return f
}

// remedy does away with one constraint of a job.
func (s *sim) remedy(i int, c why.Constraint) {
	j := &s.jobs[i]
	r := &j.rec
	worker := func(queues ...string) {
		s.phase = append(s.phase, 0)
		s.workers = append(s.workers, why.Worker{Name: "new", Queues: queues, Slots: len(s.jobs), Labels: []string{"docker", "gpu"}})
	}
	switch c {
	case why.KeptCancelling, why.KeptExecuting, why.KeptAsking:
		r.State, r.Worker, r.Cancel = jobs.Pending, "", nil
	case why.KeptLost:
		r.State = jobs.Pending
	case why.KeptBatchPaused:
		delete(s.batches, r.Batch)
		if r.Hold != "" {
			r.State, r.Hold = jobs.Pending, ""
		}
	case why.KeptParked, why.KeptDue:
		r.State, r.Hold, j.missing = jobs.Pending, "", false
	case why.KeptRunAt, why.KeptBackOff, why.KeptBudget:
		s.now = r.NotBefore.Add(time.Minute)
	case why.KeptDepends:
		for i := range s.jobs {
			if slices.Contains(r.DependsOn, s.jobs[i].rec.ID) {
				s.jobs[i].rec.State, s.jobs[i].rec.Outcome = jobs.Finished, jobs.Success
			}
		}
	case why.KeptCap:
		delete(s.caps, r.Agent)
	case why.KeptQueuePaused:
		delete(s.queues, r.Queue)
	case why.KeptNoWorker:
		worker("elsewhere")
	case why.KeptNoQueue, why.KeptNeeds, why.KeptClosed, why.KeptSlots:
		worker(r.Queue)
	}
}

func (s *sim) clone() *sim {
	c := *s
	c.queues, c.batches = map[string]*why.Pause{}, map[string]*why.Pause{}
	for k, v := range s.queues {
		c.queues[k] = v
	}
	for k, v := range s.batches {
		c.batches[k] = v
	}
	c.caps = map[string]int{}
	for k, v := range s.caps {
		c.caps[k] = v
	}
	c.jobs, c.workers, c.phase = slices.Clone(s.jobs), slices.Clone(s.workers), slices.Clone(s.phase)
	return &c
}

// randomSim makes a pool in which anything may be the matter, and often several
// things at once.
func randomSim(r *rand.Rand) *sim {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &sim{now: now, lease: 10 * time.Second, queues: map[string]*why.Pause{}, batches: map[string]*why.Pause{}}
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for _, q := range []string{"a", "b"} {
		if r.IntN(4) == 0 {
			s.queues[q] = &why.Pause{By: "x", At: now}
		}
	}
	for _, b := range []string{"x", "y"} {
		if r.IntN(4) == 0 {
			s.batches[b] = &why.Pause{At: now}
		}
	}
	s.dispatcher = r.IntN(4) == 0
	s.caps = map[string]int{}
	if r.IntN(2) == 0 {
		s.caps["claude"] = 1 + r.IntN(2)
	}
	for i := range r.IntN(4) {
		s.phase = append(s.phase, r.IntN(16))
		w := why.Worker{Name: fmt.Sprint("w", i), Queues: []string{pick("a", "b", "c")}, Slots: 1 + r.IntN(3), Closed: pick("", "", "", "it shuts down")}
		w.Busy = r.IntN(w.Slots + 1)
		w.Labels = [][]string{nil, {"gpu"}, {"docker", "gpu"}}[r.IntN(3)]
		s.workers = append(s.workers, w)
	}
	for i := range 1 + r.IntN(6) {
		rec := jobs.Record{ID: fmt.Sprint("job", i), Queue: pick("a", "b"), Batch: pick("", "", "x", "y"), Lane: pick("p0", "p1", "p2"), Attempt: r.IntN(2)}
		rec.Agent = pick("claude", "codex")
		rec.Needs = [][]string{nil, nil, {"gpu"}, {"docker"}, {"docker", "gpu"}}[r.IntN(5)]
		rec.State = []jobs.State{jobs.Pending, jobs.Pending, jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished}[r.IntN(7)]
		at := now.Add(time.Duration(r.IntN(120)-60) * time.Second)
		written := now.Add(-time.Duration(r.IntN(20)) * time.Second)
		switch rec.State {
		case jobs.Delayed:
			rec.NotBefore = &at
			if rec.Attempt > 0 {
				rec.Reason = jobs.Reason(pick("", string(jobs.BudgetWaiting), string(jobs.BudgetParked)))
			}
		case jobs.Executing:
			if r.IntN(3) == 0 {
				rec.Asks = &jobs.OpenAsk{Type: "question", Question: "which?"}
			}
			rec.Worker, rec.Attempt = "w0", 1
			if r.IntN(3) == 0 {
				rec.Cancel = &jobs.Cancel{At: now}
			}
		case jobs.Waiting:
			rec.Hold, rec.NotBefore = "question", &at
			switch {
			case r.IntN(3) == 0 && rec.Batch != "":
				rec.Hold, rec.NotBefore = "batch", nil
			case r.IntN(3) == 0 && i > 0:
				rec.Hold, rec.NotBefore, rec.DependsOn = "depends_on", nil, []string{fmt.Sprint("job", r.IntN(i))}
			}
		case jobs.Finished:
			rec.Outcome, rec.Reason = jobs.Error, jobs.Billing
		}
		s.jobs = append(s.jobs, simJob{rec, written, i, r.IntN(8) == 0})
	}
	return s
}

// In thousands of pools in which anything may be the matter, the answer is the
// truth: a job that is said to be kept by nothing is claimed, and no other one
// is; while the named constraint remains the job stays, whatever else is fixed;
// and fixing what is named, one answer after the other, gets it claimed.
func TestWhyNamesTheTrueReason(t *testing.T) {
	const states = 20_000
	r := rand.New(rand.NewPCG(1, 2))
	named := map[why.Constraint]int{}
	for n := range states {
		s := randomSim(r)
		i := r.IntN(len(s.jobs))
		first := why.Of(s.facts(i))
		named[first.Constraint]++
		if first.Message == "" || first.Change == "" || first.Job != s.jobs[i].rec.ID {
			t.Fatalf("state %d: %+v says too little", n, first)
		}
		s.checkNamed(t, n, i, first)
		if first.Constraint == why.KeptFinished {
			continue
		}
		seen := map[why.Constraint]bool{}
		for answer := first; answer.Constraint != why.KeptByNothing; answer = why.Of(s.facts(i)) {
			open := answer.Constraint == why.KeptLost || unsure(answer) || answer.Constraint == why.KeptDue && s.dispatcher
			if seen[answer.Constraint] || s.tick()[answer.Job] && !open {
				t.Fatalf("state %d: %+v, after %v had been mended", n, answer, seen)
			}
			seen[answer.Constraint] = true
			s.remedy(i, answer.Constraint)
		}
		if !s.tick()[first.Job] {
			t.Fatalf("state %d: nothing keeps %s any more, and nobody claims it: %+v", n, first.Job, s)
		}
	}
	for _, c := range constraints {
		if named[c] < states/1000 {
			t.Errorf("%s was the answer in %d of %d states: too few to tell", c, named[c], states)
		}
	}
	t.Logf("%d states: %v", states, named)
}

// unsure reports whether the pool does not tell: there are free slots, or permits,
// and jobs that may take them or not.
func unsure(answer why.Standing) bool {
	return answer.Constraint == why.KeptSlots && answer.Free > 0 ||
		answer.Constraint == why.KeptCap && strings.Contains(answer.Message, "may come first")
}

var constraints = []why.Constraint{
	why.KeptFinished, why.KeptCancelling, why.KeptExecuting, why.KeptAsking, why.KeptLost, why.KeptBatchPaused, why.KeptParked, why.KeptRunAt, why.KeptBackOff, why.KeptBudget,
	why.KeptDue, why.KeptDepends, why.KeptQueuePaused, why.KeptCap, why.KeptNoWorker, why.KeptNoQueue, why.KeptNeeds, why.KeptClosed, why.KeptSlots, why.KeptByNothing,
}

// checkNamed holds an answer against what happens in the pool as it is, and in
// one where all is fixed but what was named.
func (s *sim) checkNamed(t *testing.T, n, i int, answer why.Standing) {
	t.Helper()
	s = s.clone()
	if s.jobs[i].rec.State == jobs.Pending {
		claimed := s.tick()[answer.Job]
		if unsure(answer) {
			return
		}
		if claimed != (answer.Constraint == why.KeptByNothing) {
			t.Fatalf("state %d: %+v, and claimed: %v", n, answer, claimed)
		}
	}
	// Those that look at the same thing, from coarse to fine, are one.
	alike := map[why.Constraint]int{why.KeptNoWorker: 1, why.KeptNoQueue: 1, why.KeptNeeds: 1, why.KeptClosed: 1, why.KeptSlots: 1}
	states := map[why.Constraint]bool{
		why.KeptFinished: true, why.KeptCancelling: true, why.KeptExecuting: true, why.KeptAsking: true, why.KeptParked: true,
		why.KeptRunAt: true, why.KeptBackOff: true, why.KeptBudget: true, why.KeptDepends: true,
	}
	switch {
	case answer.Constraint == why.KeptByNothing || answer.Constraint == why.KeptLost || answer.Constraint == why.KeptDue:
		return // time or a dispatcher fixes it
	case states[answer.Constraint]: // its own state keeps it: fix everything around
		s.queues, s.batches, s.caps, s.dispatcher = nil, nil, nil, true
		s.phase = []int{0}
		s.workers = []why.Worker{{Queues: []string{"a", "b"}, Slots: 100, Labels: []string{"docker", "gpu"}}}
	default:
		s.dispatcher = true
		for _, c := range []why.Constraint{why.KeptBatchPaused, why.KeptQueuePaused, why.KeptCap, why.KeptNoWorker, why.KeptNoQueue, why.KeptNeeds, why.KeptClosed, why.KeptSlots} {
			if c != answer.Constraint && (alike[c] == 0 || alike[answer.Constraint] == 0) {
				s.remedy(i, c)
			}
		}
	}
	if s.tick()[answer.Job] {
		t.Fatalf("state %d: %+v, and yet it is claimed while that remains", n, answer)
	}
}

func TestWhyTellsWhatWouldChangeIt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := now.Add(time.Minute)
	rec := jobs.Record{ID: "j", Queue: "slow", Batch: "b", State: jobs.Pending, Attempt: 1}
	with := func(change func(*jobs.Record)) jobs.Record { r := rec; change(&r); return r }
	busy := []why.Worker{{Name: "w", Queues: []string{"slow"}, Slots: 2, Busy: 2}}
	tests := []struct {
		facts           why.Facts
		constraint      why.Constraint
		message, change string
		position, slots int
	}{
		{why.Facts{Record: rec, Workers: busy, Ahead: 3}, why.KeptSlots, "it is number 4 of queue slow, and 0 of the 2 slots that serve it are free", "its turn comes", 4, 2},
		{why.Facts{Record: rec, Queue: &why.Pause{By: "cli", At: now, Until: &later}}, why.KeptQueuePaused, "queue slow is paused by cli since 2026-01-02 03:04:05Z, until 2026-01-02 03:05:05Z", "penstock queue resume slow", 0, 0},
		{why.Facts{Record: rec, Batch: &why.Pause{At: now}}, why.KeptBatchPaused, "batch b is paused since 2026-01-02 03:04:05Z", "penstock batch resume b", 0, 0},
		{why.Facts{Record: rec, Workers: []why.Worker{{Queues: []string{"x"}}}}, why.KeptNoQueue, "none of the 1 workers that are alive serves queue slow", "penstock worker --queues slow", 1, 0},
		{why.Facts{Record: with(func(r *jobs.Record) { r.Needs = []string{"docker", "gpu"} }), Workers: []why.Worker{{Queues: []string{"slow"}}, {Queues: []string{"slow"}, Labels: []string{"gpu"}}}}, why.KeptNeeds, "it needs docker and gpu; of the 2 workers that serve queue slow the nearest lacks docker", "penstock worker --labels docker,gpu", 1, 0},
		{why.Facts{Record: with(func(r *jobs.Record) { r.State, r.Worker = jobs.Executing, "w" }), Written: now, Lease: time.Minute}, why.KeptExecuting, "worker w runs attempt 1, and has its lease until 2026-01-02 03:05:05Z", "penstock job cancel j", 0, 0},
		{why.Facts{Record: with(func(r *jobs.Record) { r.State, r.NotBefore, r.Reason = jobs.Delayed, &later, jobs.RateLimited }), Written: now}, why.KeptBackOff, "attempt 1 ended (model_rate_limited: ); the next begins at 2026-01-02 03:05:05Z", jobs.Reasons[jobs.RateLimited].Advice, 0, 0},
		{why.Facts{Record: with(func(r *jobs.Record) { r.State, r.NotBefore, r.Reason = jobs.Delayed, &later, jobs.BudgetWaiting }), Written: now}, why.KeptBudget, "attempt 1 ended (budget_waiting: ); the next begins at 2026-01-02 03:05:05Z", jobs.Reasons[jobs.BudgetWaiting].Advice, 0, 0},
		{why.Facts{Record: with(func(r *jobs.Record) { r.State, r.NotBefore, r.Reason = jobs.Delayed, &later, jobs.BudgetParked }), Written: now}, why.KeptBudget, "attempt 1 ended (budget_parked: ); it goes on when its budget is larger", jobs.Reasons[jobs.BudgetParked].Advice, 0, 0},
	}
	for _, tt := range tests {
		tt.facts.Now = now
		got := why.Of(tt.facts)
		if got.Constraint != tt.constraint || got.Message != tt.message || !strings.Contains(got.Change, tt.change) || got.Position != tt.position || got.Slots != tt.slots {
			t.Errorf("got %+v\nwant %s, %q, %q, position %d, %d slots", got, tt.constraint, tt.message, tt.change, tt.position, tt.slots)
		}
	}
}
