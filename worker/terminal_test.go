package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// A viewer looks at a terminal over the broker.
type viewer struct {
	*field
	session     string
	id          string
	at          terminal.Info
	attempt     int
	seen        strings.Builder
	from, typed int64
	exit        *terminal.Exit
}

func (f *field) terminal(session string, r terminal.Request) (terminal.Answer, error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), jobstest.Patience)
	defer cancel()
	return f.eye.log.Terminal(ctx, session, r)
}

// looks opens a terminal, or looks at one that there is.
func (f *field) looks(session string, number int, args ...string) *viewer {
	f.Helper()
	v := &viewer{field: f, session: session, id: jobs.NewID()}
	r := terminal.Request{Verb: terminal.Open, ID: v.id, By: "ann", Terminal: number, Args: args, Rows: 24, Columns: 80}
	answer, err := f.terminal(session, r)
	f.must(err)
	if again, err := f.terminal(session, r); err != nil || again.Terminals[0].Terminal != answer.Terminals[0].Terminal {
		f.Errorf("the same request opened %+v, %v; want %+v", again.Terminals, err, answer.Terminals)
	}
	v.at, v.attempt = answer.Terminals[0], answer.Attempt
	return v
}

func (v *viewer) ask(r terminal.Request) (terminal.Answer, error) {
	v.Helper()
	r.ID, r.Attempt, r.Terminal = v.id, v.attempt, v.at.Terminal
	return v.field.terminal(v.session, r)
}

// sees waits until the terminal has shown a text; "" is its end.
func (v *viewer) sees(text string) {
	v.Helper()
	for v.exit == nil && (text == "" || !strings.Contains(v.seen.String(), text)) {
		answer, err := v.ask(terminal.Request{Verb: terminal.Read, From: v.from})
		if err != nil {
			v.Fatalf("waiting for %q: %v, after %q", text, err, v.seen.String())
		}
		v.seen.Write(answer.Data)
		v.from, v.exit = answer.From+int64(len(answer.Data)), answer.Exit
	}
	if !strings.Contains(v.seen.String(), text) {
		v.Fatalf("%q never came, but %q", text, v.seen.String())
	}
}

func (v *viewer) types(text string) {
	v.Helper()
	answer, err := v.ask(terminal.Request{Verb: terminal.Write, From: v.typed, Data: []byte(text)})
	v.must(err)
	if v.typed += int64(len(text)); answer.From != v.typed {
		v.Errorf("%d bytes were taken, want %d", answer.From, v.typed)
	}
}

func (v *viewer) refuses(r terminal.Request, code control.Refusal) {
	v.Helper()
	_, err := v.ask(r)
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != code {
		v.Errorf("%s: got %v, want that it is refused: %s", r.Verb, err, code)
	}
}

const waits = "echo begun; while test ! -e go-on; do sleep 0.05; done"

// Two look at one terminal, either may type, and all of it is on record.
func TestTerminals(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	f := newField(t)
	f.cfg.Secret = func(string) (string, bool) { return secret, true }
	job := f.job(waits + "; sleep 1") // a jail that ends takes its terminals along before they say how they ended
	job.Secrets = []string{"TOKEN"}
	stop := f.work()
	defer stop()
	rec := f.submit(job)
	f.runs(rec.ID)
	ann := f.looks(rec.Session, 0, "bash", "--norc")
	ann.types("PS1=; stty -echo; echo r''eady\n")
	ann.sees("ready\r\n")
	bob := f.looks(rec.Session, ann.at.Terminal)
	bob.sees("ready\r\n") // what was shown before
	ann.types("echo one; stty size; echo $TOKEN; pwd\n")
	bob.sees("one\r\n24 80\r\n" + secret) // viewers see what is there
	_, err := bob.ask(terminal.Request{Verb: terminal.Resize, Rows: 50, Columns: 132})
	f.must(err)
	bob.types("stty size; echo t''wo\n")
	ann.sees("50 132\r\ntwo\r\n")
	// What was not answered is typed again, and counts once.
	ann.types("echo on''ce\n")
	again, err := ann.ask(terminal.Request{Verb: terminal.Write, From: ann.typed - 6, Data: []byte("n''ce\necho end\n")})
	if err != nil || again.From != ann.typed+9 {
		t.Errorf("typed again: %+v, %v", again, err)
	}
	bob.sees("end\r\n")
	if n := strings.Count(bob.seen.String(), "once"); n != 1 {
		t.Errorf("it was typed %d times: %q", n, bob.seen.String())
	}
	list, err := f.terminal(rec.Session, terminal.Request{Verb: terminal.List})
	if err != nil || len(list.Terminals) != 1 || list.Terminals[0].Viewers != 2 || list.Terminals[0].Rows != 50 {
		t.Errorf("listed %+v, %v", list, err)
	}
	bob.types("touch go-on; exit 7\n")
	ann.sees("")
	if ann.exit.Code != 7 {
		t.Errorf("ended with %+v", ann.exit)
	}
	rec, events := f.ended(rec.ID)
	f.checkRecording(rec, events, secret)
}

// checkRecording wants the terminal in the log and among the artifacts.
func (f *field) checkRecording(rec jobs.Record, events []jobs.Event, secret string) {
	f.Helper()
	told := ""
	for _, e := range events {
		told += event.As[event.TerminalOutput](e).Text
	}
	if !strings.Contains(told, "one\r\n24 80\r\n[redacted TOKEN]\r\n") || strings.Contains(told, secret) {
		f.Errorf("the events tell %q", told)
	}
	if got := kinds(events); count(events, jobs.TerminalCreated) != 1 || count(events, jobs.TerminalAttached) < 1 || count(events, jobs.TerminalExited) != 1 {
		f.Errorf("events: %s", got)
	}
	result, err := f.eye.store.Result(context.Background(), rec)
	f.must(err)
	if len(result.Artifacts) != 2 || result.Artifacts[0].Name != "terminal-1.cast" {
		f.Fatalf("artifacts: %+v", result.Artifacts)
	}
	cast, err := f.eye.store.Get(context.Background(), rec.ID, rec.Epoch, "terminal-1.cast")
	f.must(err)
	defer cast.Close()
	lines := bufio.NewScanner(cast)
	var head struct{ Version, Width, Height int }
	for n := 0; lines.Scan(); n++ {
		var entry []any
		if n == 0 {
			f.must(json.Unmarshal(lines.Bytes(), &head))
		} else if f.must(json.Unmarshal(lines.Bytes(), &entry)); entry[1] == "o" {
			told = strings.TrimPrefix(told, entry[2].(string))
		}
	}
	if told != "" || head.Version != 2 || head.Width != 80 {
		f.Errorf("the recording begins with %+v, and lacks %q", head, told)
	}
}

// The end of the agent is the end of its terminals, whatever floods them, and a slow
// viewer learns what it missed.
func TestTerminalsOfAFlood(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	rec := f.submit(f.job(waits))
	f.runs(rec.ID)
	flood := f.looks(rec.Session, 0, "yes", strings.Repeat("x", 100))
	deaf := f.looks(rec.Session, 0, "sh", "-c", "stty raw -echo; echo r''eady; exec sleep 100")
	deaf.sees("ready")
	for taken := int64(0); ; {
		answer, err := deaf.ask(terminal.Request{Verb: terminal.Write, From: taken, Data: bytes.Repeat([]byte("x"), terminal.MaxInput)})
		f.must(err)
		if answer.From == taken {
			break // nothing more is taken
		}
		taken = answer.From
	}
	flood.sees("xxx")
	var gap int64
	f.until("there is a gap", func() bool {
		answer, err := flood.ask(terminal.Request{Verb: terminal.Read})
		f.must(err)
		gap = answer.From
		return gap > 2<<20
	})
	f.refusesTooMany(rec.Session)
	_, err := deaf.ask(terminal.Request{Verb: terminal.Close})
	f.must(err)
	deaf.sees("")
	deaf.refuses(terminal.Request{Verb: terminal.Write, Data: []byte("x")}, control.Over)
	_, err = f.terminal(rec.Session, terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: []string{"touch", "go-on"}})
	f.must(err)
	rec, events := f.ended(rec.ID)
	told, dropped := 0, int64(0)
	for _, e := range events {
		told += len(event.As[event.TerminalOutput](e).Text)
		dropped += event.As[event.TerminalExited](e).Dropped
	}
	if rec.Outcome != jobs.Success || told > 2<<20 || dropped < gap-(2<<20) {
		t.Errorf("%s: %d bytes were told, %d dropped", rec.Outcome, told, dropped)
	}
	if _, err := f.terminal(rec.Session, terminal.Request{Verb: terminal.List}); !errors.Is(err, session.ErrNobody) {
		t.Errorf("after the end: %v", err)
	}
}

// refusesTooMany opens terminals until no more are opened.
func (f *field) refusesTooMany(session string) {
	f.Helper()
	var open []*viewer
	for {
		answer, err := f.terminal(session, terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: []string{"sleep", "100"}})
		if refused, ok := errors.AsType[*control.RefusedError](err); ok && refused.Code == control.Busy && len(open) == terminal.MaxOpen-2 {
			break
		}
		f.must(err)
		open = append(open, &viewer{field: f, session: session, id: jobs.NewID(), at: answer.Terminals[0], attempt: answer.Attempt})
	}
	for _, v := range open {
		_, err := v.ask(terminal.Request{Verb: terminal.Close})
		f.must(err)
		v.sees("")
	}
}

// A worker that has lost the job opens no terminals, and its open ones end.
func TestTerminalsOfAnAttemptThatWasFollowed(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	rec := f.submit(f.job(waits))
	f.runs(rec.ID)
	old := f.looks(rec.Session, 0, "sh", "-c", "echo r''eady; exec sleep 100")
	old.sees("ready")
	src := session.Source{Job: rec.ID, Session: rec.Session, Attempt: 2, Epoch: 1 << 40}
	_, err := f.eye.log.Writer(t.Context(), src, event.New(event.JobClaimed{}))
	f.must(err)
	f.until("a later attempt opens one", func() bool {
		answer, err := f.terminal(rec.Session, terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: []string{"touch", "go-on"}})
		if err == nil && answer.Attempt == old.attempt {
			t.Error("the attempt that was followed opened a terminal")
		}
		return err == nil
	})
	f.until("it ends", func() bool { return count(f.events(rec.ID), jobs.JobFinished) == 1 })
}

// A policy may forbid them, and a program that there is not is no terminal.
func TestTerminalsAreRefused(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Policy.Attach = "deny"
	stop := f.work()
	defer stop()
	rec := f.submit(f.job(waits))
	f.runs(rec.ID)
	_, err := f.terminal(rec.Session, terminal.Request{Verb: terminal.Open, ID: jobs.NewID()})
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Cannot || !strings.Contains(err.Error(), "policy") {
		t.Errorf("got %v, want that the policy forbids it", err)
	}
	f.told(rec.ID, control.Message{Verb: control.Stop})
	f.ended(rec.ID)
}
