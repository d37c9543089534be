package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// A stub that hears: it makes a turn of each prompt, and says what it heard.
const hears = `text() { sed 's/.*"content":"\([^"]*\)".*/\1/'; }
turn() { say init; printf '%s\n' "$1" | sed 's/.*"uuid":"\([^"]*\)".*/{"type":"user","isReplay":true,"uuid":"\1"}/'
	printf '{"type":"assistant","message":{"content":"heard %s"}}\n' "$(printf '%s\n' "$1" | text)"; say result; }
`

const converses = hears + `while read -r l; do case $l in
*'"type":"user"'*) turn "$l";;
*interrupt*) say aborted;;
esac; done`

func (f *field) tell(id string, c control.Message) (control.Receipt, error) {
	f.Helper()
	if c.ID == "" {
		c.ID = jobs.NewID()
	}
	ctx, cancel := context.WithTimeout(context.Background(), jobstest.Patience)
	defer cancel()
	return f.eye.log.Send(ctx, id, c)
}

func (f *field) told(id string, c control.Message) control.Receipt {
	f.Helper()
	r, err := f.tell(id, c)
	f.must(err)
	return r
}

func (f *field) refused(id string, c control.Message, code control.Refusal) string {
	f.Helper()
	_, err := f.tell(id, c)
	refused, ok := errors.AsType[*control.RefusedError](err)
	if !ok || refused.Code != code {
		f.Errorf("%s: got %v, want that it is refused: %s", c.Verb, err, code)
		return ""
	}
	return refused.Message
}

// heard lists what the stub said.
func heard(events []jobs.Event) (words []string) {
	for _, e := range events {
		var d event.Message
		if e.Kind == jobs.Message && json.Unmarshal(e.Data, &d) == nil {
			words = append(words, strings.TrimPrefix(d.Text, "heard "))
		}
	}
	return words
}

func (f *field) hears(id string, words ...string) {
	f.Helper()
	f.until("it hears "+strings.Join(words, ", "), func() bool {
		got := heard(f.events(id))
		return len(got) >= len(words) && slices.Equal(got[len(got)-len(words):], words)
	})
}

func prompt(text string) control.Message {
	return control.Message{Verb: control.Prompt, By: "ann", Text: text}
}

// An interactive agent is kept after its turn. It hears what it is told once
// and in order, and the log has it without the worker's secrets.
func TestPromptsReachTheAgentOnceAndInOrder(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Secret = func(string) (string, bool) { return "hunter2hunter2", true }
	job := f.speaks(converses)
	job.Agent.Interactive, job.Secrets = true, []string{"TOKEN"}
	stop := f.work()
	defer stop()
	id := f.submit(job).ID
	f.hears(id, "test")
	var want []string
	for _, word := range []string{"one", "two", "three", "four", "five", "six"} {
		c := prompt(word)
		c.ID = jobs.NewID()
		if first, again := f.told(id, c), f.told(id, c); first != again || first.Attempt != 1 || first.Job != id {
			t.Errorf("got %+v, and then %+v", first, again)
		}
		want = append(want, word)
	}
	f.told(id, prompt("my hunter2hunter2"))
	f.hears(id, append(want, "my [redacted TOKEN]")...)
	f.refused(id, control.Message{Verb: control.Answer, Text: "x"}, control.Nothing)
	f.refused(id, control.Message{Verb: control.Interrupt}, control.Nothing)
	f.refused(id, control.Message{Verb: control.Raw, Line: json.RawMessage(`{"type":"user"}`)}, control.Cannot)
	f.told(id, control.Message{Verb: control.Raw, Line: json.RawMessage(`{"type":"user","message":{"role":"user","content":"raw"}}`)})
	f.hears(id, "raw")
	f.told(id, control.Message{Verb: control.Stop})
	rec, events := f.ended(id)
	if rec.Outcome != jobs.Success {
		t.Errorf("stopped between turns: %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
	accepted := slices.DeleteFunc(dataOf[control.Input](t, events, jobs.InputState), func(d control.Input) bool { return d.State != control.Accepted })
	if len(accepted) != len(want)+3 || accepted[0].Text != "one" || accepted[0].By != "ann" {
		t.Errorf("accepted: %+v", accepted)
	}
	for _, e := range events {
		if strings.Contains(string(e.Data), "hunter2") || e.Raw != nil && strings.Contains(string(e.Raw.JSON), "hunter2") {
			t.Errorf("event %d has the secret: %s", e.Seq, e.Data)
		}
	}
	stop()
	if _, err := f.tell(id, prompt("late")); !errors.Is(err, session.ErrNobody) {
		t.Errorf("after the end: %v", err)
	}
}

// No prompt comes: the agent is ended, and its work counts.
func TestAnInteractiveAgentIsLetGo(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(converses)
	job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(time.Second)
	if rec, events := f.run(job); rec.Outcome != jobs.Success || count(events, jobs.HangDetected) > 0 {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}

// What cannot be done says why, and does nothing.
func TestWhatAnAgentCannotHear(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.job("echo mine >new; echo begun; exec sleep 60")
	stop := f.work()
	defer stop()
	id := f.submit(job).ID
	f.runs(id)
	for verb, says := range map[control.Verb]string{
		control.Prompt: "one prompt", control.Interrupt: "stop ends it",
	} {
		c := control.Message{Verb: verb}
		if verb == control.Prompt {
			c.Text = "x"
		}
		if got := f.refused(id, c, control.Cannot); !strings.Contains(got, says) {
			t.Errorf("%s: %q", verb, got)
		}
	}
	f.told(id, control.Message{Verb: control.Stop, By: "ann"})
	rec, events := f.ended(id)
	if rec.Reason != jobs.Cancelled || !strings.Contains(rec.Message, "ann stopped") {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
	result, err := f.eye.store.Result(t.Context(), rec)
	if err != nil || result.FilesChanged != 1 {
		t.Errorf("%d files changed, %v", result.FilesChanged, err)
	}
}

// In a job that is not interactive, an agent takes prompts only while its turn is open,
// and then again when its job has finished.
func TestAPromptAfterTheLastTurn(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(hears + `read -r first; say init; read -r more; turn "$more"; sleep 3`)
	stop := f.work()
	defer stop()
	id := f.submit(job).ID
	f.until("the turn begins", func() bool { return count(f.events(id), jobs.TurnStarted) > 0 })
	f.told(id, prompt("within"))
	f.hears(id, "within")
	f.until("the turn ends", func() bool { return count(f.events(id), jobs.TurnEnded) > 0 })
	if got := f.refused(id, prompt("after"), control.NotReady); !strings.Contains(got, "when the job has finished") {
		t.Errorf("refused with %q", got)
	}
	rec, events := f.ended(id)
	if rec.Outcome != jobs.Success {
		t.Errorf("ended with %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
	for _, turn := range dataOf[event.TurnEnded](t, events, jobs.TurnEnded) {
		if turn.Seconds <= 0 || turn.Seconds > jobstest.Patience.Seconds() {
			t.Errorf("a turn took %v seconds", turn.Seconds)
		}
	}
}

const asks = hears + `read -r first; say init
ask() { printf '{"type":"control_request","request_id":"%s","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}}}\n' $1
	read -r answer; printf '{"type":"assistant","message":{"content":"heard %s"}}\n' "$(printf '%s\n' "$answer" | sed 's/.*"answers":{"Which?":"\([^"]*\)".*/\1/; s/.*"behavior":"\(deny\)".*/\1/')"; }
ask q1; ask q2; say result; cat >/dev/null`

// A question waits for its answer, and not for ever.
func TestQuestions(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(asks)
	job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(2*time.Second)
	stop := f.work()
	defer stop()
	id := f.submit(job).ID
	f.until("it asks", func() bool { return count(f.events(id), jobs.AskOpened) == 1 })
	f.refused(id, control.Message{Verb: control.Answer, Options: []string{"Z"}}, control.Unfit)
	f.refused(id, control.Message{Verb: control.Answer, Ask: "q2", Options: []string{"A"}}, control.Nothing)
	answer := control.Message{ID: jobs.NewID(), Verb: control.Answer, Options: []string{"b"}}
	f.told(id, answer)
	f.hears(id, "B")
	f.told(id, answer) // the second question is not answered with it
	rec, events := f.ended(id)
	closed := dataOf[control.Ask](t, events, jobs.AskClosed)
	if len(closed) != 2 || closed[0].How != "answered" || closed[1].How != "expired" || !slices.Equal(heard(events), []string{"B", "deny"}) {
		t.Errorf("closed %+v, heard %q", closed, heard(events))
	}
	if rec.Outcome != jobs.Success {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}

// An agent that never stops asking is refused, since each question is kept until it is
// answered. The same question again is not a new one.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	f := newField(t)
	const maxAsks = 16 // open at once
	const asked = 3 * maxAsks
	job := f.speaks(hears + `read -r first; say init
awk 'BEGIN { for (i = 0; i < 48; i++) { n = i - (i == 1)
	printf "{\"type\":\"control_request\",\"request_id\":\"q%d\",\"request\":{\"subtype\":\"can_use_tool\",\"tool_name\":\"Bash\",\"input\":{}}}\n", n } }'
n=0; many=0; while test $((n=n+1)) -lt 48; do read -r answer; case $answer in *'"deny"'*"Too many"*) many=$((many+1));; *'"deny"'*);; *) exit 1;; esac; done
printf '{"type":"assistant","message":{"content":"heard %s"}}\n' $many; say result; cat >/dev/null`)
	job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(3*time.Second)
	rec, events := f.run(job)
	how := map[string]int{}
	for _, closed := range dataOf[control.Ask](t, events, jobs.AskClosed) {
		how[closed.How]++
	}
	many := asked - 1 - maxAsks
	if how["expired"] != maxAsks || how["declined"] != many || !slices.Equal(heard(events), []string{strconv.Itoa(many)}) {
		t.Errorf("closed %v, heard %q; want that %d are declined", how, heard(events), many)
	}
	if rec.Outcome != jobs.Success {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}

// An interrupt ends the turn and keeps the agent, which hears more; a stop
// within a turn ends both.
func TestInterruptAndStop(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Hangs = Hangs{Step: 300 * time.Millisecond}
	job := f.speaks(hears + `while read -r l; do case $l in
		*wait*) say init;;
		*'"type":"user"'*) turn "$l";;
		*interrupt*) say aborted;;
		esac; done`)
	job.Agent.Interactive, job.Prompt = true, "wait"
	stop := f.work()
	defer stop()
	id := f.submit(job).ID
	turns := func(n int) {
		f.until("a turn", func() bool { return count(f.events(id), jobs.TurnStarted) == n })
	}
	turns(1)
	f.told(id, control.Message{Verb: control.Interrupt})
	f.until("the turn ends", func() bool { return count(f.events(id), jobs.TurnEnded) == 1 })
	f.told(id, prompt("more"))
	f.hears(id, "more")
	f.told(id, prompt("wait"))
	turns(3)
	f.told(id, control.Message{Verb: control.Stop})
	if rec, events := f.ended(id); rec.Reason != jobs.Cancelled || count(events, jobs.HangDetected) > 0 {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}

// What was accepted is not lost with the attempt: the next one's agent is told
// it, too, and a duplicate of it has the receipt that it had.
func TestWhatWasAcceptedOutlivesTheAttempt(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(converses)
	job.Agent.Interactive = true
	stop := f.work()
	id := f.submit(job).ID
	f.hears(id, "test")
	c := prompt("remember")
	c.ID = jobs.NewID()
	first := f.told(id, c)
	f.hears(id, "remember")
	stop() // which hands the job back at once
	defer f.work()()
	f.hears(id, "remember", "test", "remember")
	if again := f.told(id, c); again != first {
		t.Errorf("got %+v, want %+v", again, first)
	}
	f.told(id, prompt("new"))
	f.hears(id, "test", "remember", "new")
	f.told(id, control.Message{Verb: control.Stop})
	if rec, _ := f.ended(id); rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Errorf("ended with %s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
	}
}

// A worker that has lost the job, and does not know it yet, sends its agent nothing.
func TestOnlyTheHolderActs(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(converses)
	job.Agent.Interactive = true
	stop := f.work()
	defer stop()
	rec := f.submit(job)
	f.hears(rec.ID, "test")
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: 2, Epoch: 1 << 40}
	_, err := f.eye.log.Writer(t.Context(), src, event.New(event.JobClaimed{}))
	f.must(err)
	f.refused(rec.ID, prompt("too late"), control.Lost)
	f.until("it is attempted again", func() bool { return len(heard(f.events(rec.ID))) == 2 })
	f.told(rec.ID, control.Message{Verb: control.Stop})
	f.until("it ends", func() bool { return count(f.events(rec.ID), jobs.JobFinished) == 1 })
	if got := heard(f.events(rec.ID)); !slices.Equal(got, []string{"test", "test"}) {
		t.Errorf("heard %q", got)
	}
}
