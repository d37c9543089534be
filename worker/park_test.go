package worker

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/why"
)

// A stub that asks in its first turn, and has a memory. What it hears instead of
// an answer, in a new process, it says.
const asksOnce = hears + `mine=$HOME/.claude/projects/-workspace/s.jsonl
case $* in *--resume*) [ -s $mine ] || exit 1;; esac
mkdir -p ${mine%/*}
while read -r l; do case $l in
*'"content":"test"'*) printf '%s\n' "$l" >>$mine; say init; echo begun >made.txt
	printf '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","tool_use_id":"t1","input":{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}}}\n';;
*'"type":"user"'*) cat made.txt >seen.txt; turn "$l";;
esac; done`

// parked waits until a job is parked, and returns its record.
func (f *field) parked(id string) (rec jobs.Record) {
	f.Helper()
	f.until("it is parked", func() bool {
		var err error
		rec, err = f.eye.queue.Get(f.Context(), id)
		f.must(err)
		return rec.Asking()
	})
	return rec
}

// wakes has a parked job go on, as a leader does. A worker that parks a job writes the record
// before it gives the job's message back: a job that is woken in between is offered again.
func (f *field) wakes(rec jobs.Record) {
	f.Helper()
	f.until("the parked job is claimed again", func() bool {
		now, err := f.eye.queue.Wake(f.Context(), rec)
		f.must(err)
		return now.Attempt != rec.Attempt
	})
}

func (f *field) asking(ask jobs.Ask) jobs.Job {
	job := f.speaks(asksOnce)
	job.Agent.Interactive, job.Ask = true, ask
	return job
}

// A question without an answer gives its slot up, and the next attempt continues the
// conversation and gets the answer. The first attempt is not charged.
func TestAQuestionGivesItsSlotUp(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	job := f.asking(jobs.Ask{ParkAfter: jobs.Duration(time.Second)})
	defer f.work()()
	id := f.submit(job).ID
	f.until("why says who asks what", func() bool {
		s, err := f.eye.queue.Standings().Why(f.Context(), id, nil)
		f.must(err)
		return s.Constraint == why.KeptAsking && strings.Contains(s.Message, "agent stub asks since ") &&
			strings.HasSuffix(s.Message, ": Which?") && strings.HasPrefix(s.Change, "penstock answer "+id)
	})
	rec := f.parked(id)
	if rec.Asks != nil {
		t.Errorf("a parked record still tells of %+v", rec.Asks)
	}
	if rec.Message != "Which?" || rec.NotBefore == nil || rec.Worker != "" || rec.Attempt != 1 || rec.Counted+rec.Lost > 0 {
		t.Errorf("the record is %+v", rec)
	}
	if other, _ := f.ended(f.submit(f.job("true")).ID); other.Outcome != jobs.Success {
		t.Errorf("in its slot ended %+v", other)
	}
	if c := f.capsules(id); len(c) != 1 || !slices.Equal(c[0].Asks, []string{"q1"}) || !c[0].Open || c[0].Work.Files != 1 {
		t.Errorf("the capsules are %+v", c)
	}
	for _, c := range []control.Message{
		{ID: jobs.NewID(), Verb: control.Prompt, Text: "and more"},
		{ID: jobs.NewID(), Verb: control.Answer, Options: []string{"b"}},
	} {
		_, _, err := f.eye.log.Accept(t.Context(), rec, c)
		f.must(err)
	}
	f.wakes(rec)
	f.hears(id, "and more")
	f.told(id, control.Message{Verb: control.Stop})
	rec, events := f.ended(id)
	if rec.Outcome != jobs.Success || rec.Attempt != 2 || rec.Counted+rec.Lost > 0 {
		t.Fatalf("ended with %s %s (%s) in attempt %d: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
	}
	said := heard(events)
	if len(said) != 2 || !strings.Contains(said[0], "The question was: Which?\nThe answer is: B\n\n") {
		t.Errorf("heard %q", said)
	}
	closed, how := dataOf[control.Ask](t, events, jobs.AskClosed), dataOf[event.SessionContinued](t, events, jobs.SessionContinued)
	if len(closed) != 1 || closed[0].Ask != "q1" || closed[0].How != "answered" || len(how) != 1 || how[0].How != "resumed" {
		t.Errorf("closed %+v, continued %+v", closed, how)
	}
	if w := dataOf[event.JobWaiting](t, events, jobs.JobWaiting); len(w) != 1 || w[0].Question != "Which?" || !slices.Equal(w[0].Asks, []string{"q1"}) {
		t.Errorf("told that it waits: %+v", w)
	}
	patch, err := f.eye.store.Get(t.Context(), id, rec.Epoch, PatchName)
	f.must(err)
	defer patch.Close()
	if got, err := io.ReadAll(patch); err != nil || strings.Count(string(got), "+begun") != 2 {
		t.Errorf("the patch is %s, %v", got, err)
	}
}

// A stub that asks for a permission, once more in a new process, and then for another one. It
// writes down what it is answered.
const asksPermission = hears + `mine=$HOME/.claude/projects/-workspace/s.jsonl
ask() { printf '{"type":"control_request","request_id":"%s","request":{"subtype":"can_use_tool","tool_name":"Write","tool_use_id":"t-%s","input":{"file_path":"%s"}}}\n' "$1" "$1" "$2"; }
mkdir -p ${mine%/*}
while read -r l; do case $l in
*'"content":"test"'*) printf '%s\n' "$l" >>$mine; say init; ask q1 a.txt;;
*'"type":"user"'*) printf '%s\n' "$l" >heard.txt; ask q2 a.txt
	told=$(sed 's/"content":"\([^"\\]\|\\.\)*"/"content":"of it"/' heard.txt);;
*'"request_id":"q2"'*) printf '%s\n' "$l" >>answers.txt; ask q3 b.txt;;
*'"request_id":"q3"'*) printf '%s\n' "$l" >>answers.txt; turn "$told";;
esac; done`

// A request for a permission gives its slot up as a question does. The next attempt asks once
// more for what was decided meanwhile, and is answered at once; what it asks for besides, a
// person has to decide.
func TestAPermissionGivesItsSlotUp(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	f.cfg.Slots = 2
	job := f.speaks(asksPermission)
	job.Agent.Interactive, job.Ask.ParkAfter = true, jobs.Duration(time.Second)
	defer f.work()()
	for name, tt := range map[string]struct {
		answer                control.Message
		how, hears, behaviour string
	}{
		"granted": {control.Message{}, "answered", "It is granted. The tool has not run yet", `"behavior":"allow"`},
		"refused": {control.Message{Deny: true, Text: "not there"}, "declined", "It is refused: not there", `"behavior":"deny","message":"not there"`},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.submit(job).ID
			rec := f.parked(id)
			if rec.Message != "may it use Write?" || rec.Counted+rec.Lost > 0 {
				t.Errorf("the record is %+v", rec)
			}
			tt.answer.ID, tt.answer.Verb = jobs.NewID(), control.Answer
			_, _, err := f.eye.log.Accept(t.Context(), rec, tt.answer)
			f.must(err)
			f.wakes(rec)
			f.until("it asks for another one", func() bool { return count(f.events(id), jobs.AskOpened) == 3 })
			if closed := dataOf[control.Ask](t, f.events(id), jobs.AskClosed); len(closed) != 2 || closed[0].Ask != "q1" || closed[1].Ask != "q2" || closed[1].How != tt.how {
				t.Errorf("closed %+v, want the second as %s", closed, tt.how)
			}
			f.told(id, control.Message{Verb: control.Answer, Ask: "q3", Deny: true, Text: "no more"})
			f.hears(id, "of it")
			f.told(id, control.Message{Verb: control.Stop})
			rec, events := f.ended(id)
			if rec.Outcome != jobs.Success || rec.Attempt != 2 || rec.Counted+rec.Lost > 0 {
				t.Errorf("ended with %s %s (%s) in attempt %d: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
			}
			patch, err := f.eye.store.Get(t.Context(), id, rec.Epoch, PatchName)
			f.must(err)
			defer patch.Close()
			text, err := io.ReadAll(patch)
			lines := strings.Split(string(text), "\n+{")
			if err != nil || len(lines) != 4 || !strings.Contains(lines[1], tt.behaviour) || !strings.Contains(lines[2], `"message":"no more"`) || !strings.Contains(lines[3], tt.hears) || !strings.Contains(lines[3], "a.txt") {
				t.Errorf("it was answered, err %v:\n%s", err, text)
			}
		})
	}
}

// The job decides what happens to a question that is never answered.
func TestAParkedQuestionThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.restores()
	f.cfg.Slots = 3
	job := f.asking(jobs.Ask{})
	defer f.work()()
	for name, tt := range map[string]struct {
		ask        jobs.Ask
		hears, how string
	}{
		"declined": {jobs.Ask{}, "This is an unattended run", "expired"},
		"default":  {jobs.Ask{Default: "B"}, "The answer is: B", "default"},
		"fail":     {jobs.Ask{Fail: true}, "", "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			job.Ask = tt.ask
			job.Ask.ParkAfter = jobs.Duration(time.Second)
			id := f.submit(job).ID
			f.wakes(f.parked(id))
			f.until("it goes on", func() bool { return count(f.events(id), jobs.AskClosed) == 1 })
			if tt.hears != "" {
				f.until("it hears of it", func() bool { return len(heard(f.events(id))) == 1 })
				f.told(id, control.Message{Verb: control.Stop})
			}
			rec, events := f.ended(id)
			if closed := dataOf[control.Ask](t, events, jobs.AskClosed); closed[0].How != tt.how || count(events, jobs.JobWaiting) != 1 {
				t.Errorf("closed %+v: %s", closed, kinds(events))
			}
			if tt.hears == "" {
				if rec.Outcome != jobs.TimedOut || rec.Reason != jobs.Unanswered || !strings.Contains(rec.Message, "Which?") {
					t.Errorf("ended with %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
				}
			} else if said := heard(events); rec.Outcome != jobs.Success || !strings.Contains(said[0], tt.hears) {
				t.Errorf("ended with %s %s (%s), and heard %q", rec.Outcome, rec.Reason, rec.Message, said)
			}
		})
	}
}

// Agents that cannot continue later keep their slot: one whose conversation is not
// stored, one that does something else meanwhile, and one that is attached to.
func TestWhatIsNotParked(t *testing.T) {
	t.Parallel()
	const tool = `echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t2","name":"Bash","input":{}}]}}';`
	for name, script := range map[string]string{
		"no memory":    asks,
		"another tool": strings.Replace(asksOnce, "echo begun", tool+" echo begun", 1),
		"a terminal":   strings.Replace(asksOnce, `"content":"test"`, `"content":"ask"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			f.cfg.Hangs = Hangs{Step: 300 * time.Millisecond}
			job := f.speaks(script)
			defer f.work()()
			job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(2500*time.Millisecond)
			job.Ask.ParkAfter = jobs.Duration(time.Second)
			id := f.submit(job).ID
			if name == "a terminal" {
				f.until("its first turn", func() bool { return len(heard(f.events(id))) > 0 })
				f.looks(id, 0, "sleep", "600")
				f.told(id, prompt("ask"))
			}
			f.until("nobody answers it", func() bool { return count(f.events(id), jobs.AskClosed) > 0 })
			if events := f.events(id); count(events, jobs.JobWaiting) > 0 {
				t.Errorf("it was parked: %s", kinds(events))
			}
			f.told(id, control.Message{Verb: control.Stop})
			f.ended(id)
		})
	}
}

// A question that keeps its slot ends as the job says, too.
func TestAnOpenQuestionEndsAsTheJobSays(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]jobs.Ask{"default": {Default: "B"}, "fail": {Fail: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			job := f.speaks(asks)
			job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(3*time.Second)
			job.Ask = ask
			job.Ask.Timeout = jobs.Duration(time.Second)
			rec, events := f.run(job)
			closed, said := dataOf[control.Ask](t, events, jobs.AskClosed), heard(events)
			switch {
			case name == "fail":
				if rec.Outcome != jobs.TimedOut || rec.Reason != jobs.Unanswered {
					t.Errorf("ended with %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
				}
			case rec.Outcome != jobs.Success || !slices.Equal(said, []string{"B", "B"}) || len(closed) != 2 || closed[0].How != "default":
				t.Errorf("ended with %s %s (%s), heard %q, closed %+v", rec.Outcome, rec.Reason, rec.Message, said, closed)
			}
		})
	}
}
