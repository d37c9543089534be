package agentrun

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/inside"
)

// asks has a program in the jail ask, and returns what it is told once the question is open.
func (g *rig) asks(ctx context.Context, q inside.Ask) (id string, told <-chan inside.Answer) {
	g.t.Helper()
	answers := make(chan inside.Answer, 1)
	go func() {
		answer, err := g.ask(ctx, q)
		if err != nil {
			g.t.Error(err)
		}
		answers <- answer
	}()
	<-g.state.news
	if ids := g.open(); len(ids) > 0 { // it may be over already
		id = ids[0]
	}
	return id, answers
}

// A program in the jail is told how its question ended, whatever ends it.
func TestAProgramsQuestionEnds(t *testing.T) {
	t.Parallel()
	ask := inside.Ask{Question: control.Question{Question: "Which?"}}
	for name, tt := range map[string]struct {
		job  jobs.Ask
		ask  inside.Ask
		ends func(g *rig, id string, withdraw context.CancelFunc)
		want inside.Answer
		how  string // as the log has it; "" means that it stays open
	}{
		"answered": {ask: ask, ends: func(g *rig, id string, _ context.CancelFunc) {
			g.sends(control.Message{Verb: control.Answer, Ask: id, Text: "B"})
		}, want: inside.Answer{How: "answered", Text: "B"}, how: "answered"},
		"answered without its id": {ask: ask, ends: func(g *rig, _ string, _ context.CancelFunc) {
			g.sends(control.Message{Verb: control.Answer, Text: "B"})
		}, want: inside.Answer{How: "answered", Text: "B"}, how: "answered"},
		"declined": {ask: ask, ends: func(g *rig, id string, _ context.CancelFunc) {
			g.sends(control.Message{Verb: control.Answer, Ask: id, Deny: true, Text: "no"})
		}, want: inside.Answer{How: "declined", Text: "no"}, how: "declined"},
		"its program goes": {ask: ask, ends: func(_ *rig, _ string, withdraw context.CancelFunc) { withdraw() }, want: inside.Unanswered, how: "withdrawn"},
		"its own limit": {ask: inside.Ask{Question: ask.Question, Timeout: jobs.Duration(time.Millisecond)},
			ends: func(*rig, string, context.CancelFunc) {}, want: inside.Unanswered, how: "expired"},
		"the job's limit":          {ask: ask, ends: lapses, want: inside.Unanswered, how: "expired"},
		"the job's default answer": {job: jobs.Ask{Default: "C"}, ask: ask, ends: lapses, want: inside.Answer{How: "answered", Text: "C"}, how: "default"},
		"it is parked": {ask: ask, ends: func(g *rig, id string, withdraw context.CancelFunc) {
			g.state.look(time.Now().Add(time.Minute), false)
			g.state.park(<-g.state.capsules, true, false)
			withdraw()
		}, want: inside.Answer{How: "withdrawn"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var job jobs.Job
			job.IdleTimeout, job.Ask = jobs.Duration(time.Hour), tt.job
			job.Ask.Timeout, job.Ask.ParkAfter = jobs.Duration(30*time.Minute), jobs.Duration(time.Second)
			g := newRig(t, job, nil)
			ctx, withdraw := context.WithCancel(t.Context())
			defer withdraw()
			id, told := g.asks(ctx, tt.ask)
			tt.ends(g, id, withdraw)
			if got := <-told; got != tt.want {
				t.Errorf("the program is told %+v, want %+v", got, tt.want)
			}
			var want []string
			if tt.how != "" {
				want = []string{tt.how}
			}
			if how := g.closed(); !slices.Equal(how, want) {
				t.Errorf("the log has %q, want %q", how, want)
			}
		})
	}
}

func lapses(g *rig, _ string, _ context.CancelFunc) {
	g.state.look(time.Now().Add(31*time.Minute), false)
}

func (g *rig) sends(c control.Message) {
	if err := g.Control(g.t.Context(), c, nil); err != nil {
		g.t.Error(err)
	}
}

// An answer that could not be stored was not given, and its program is told so.
func TestAnAnswerThatIsNotStored(t *testing.T) {
	t.Parallel()
	var job jobs.Job
	job.IdleTimeout = jobs.Duration(time.Hour)
	g := newRig(t, job, nil)
	g.cfg.Append = func(context.Context, jobs.Event) error { return errors.New("no broker") }
	id, told := g.asks(t.Context(), inside.Ask{Question: control.Question{Question: "Which?"}})
	if err := g.Control(t.Context(), control.Message{Verb: control.Answer, Ask: id, Text: "B"}, nil); err == nil || g.ended == nil {
		t.Errorf("it was accepted: %v, and the attempt goes on: %v", err, g.ended)
	}
	if got := <-told; got != inside.Unanswered {
		t.Errorf("the program is told %+v", got)
	}
}
