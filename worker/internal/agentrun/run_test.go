package agentrun

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/recorder"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/watchdog"
	"github.com/penstock-run/penstock/worker/terminals"
)

var _ agent.Speaker = (*speaker)(nil)

// A speaker is an agent that says what a test has it say.
type speaker struct {
	agent.Decoder
	next  []event.Event
	state agent.State // after them
	said  []string    // ids of prompts
}

func (s *speaker) Line(agent.Line) agent.Read { return agent.Read{Events: s.next, State: s.state} }
func (s *speaker) Total() agent.Total         { return agent.Total{Session: "conversation"} }
func (s *speaker) Say(id, _ string, _ ...control.Image) [][]byte {
	s.said = append(s.said, id)
	return nil
}
func (s *speaker) TakesImages() error                             { return nil }
func (s *speaker) Interrupt() [][]byte                            { return nil }
func (s *speaker) Set(string, control.Settings) ([][]byte, error) { return nil, nil }
func (s *speaker) Raw(string, []byte) ([][]byte, error)           { return nil, nil }
func (s *speaker) Answer(c control.Message) ([]event.Event, [][]byte, error) {
	how := "answered"
	if c.Deny {
		how = "declined"
	}
	return []event.Event{event.Make(event.AskClosed{Ask: c.Ask, How: how})}, [][]byte{[]byte(c.Text)}, nil
}

// A memory is a conversation that keeps capsules, and nothing of them.
type memory struct{}

func (memory) Continues() bool { return true }
func (memory) Kept() bool      { return true }
func (memory) Turns() int      { return 0 }
func (memory) Settle(context.Context, conversation.Position, func() bool) {
}
func (memory) Store(context.Context, conversation.Position, jobs.Reason, func(context.Context) (*jobs.Salvage, error)) bool {
	return true
}

// A lease notes which question the record tells of.
type lease struct{ open *jobs.OpenAsk }

func (l *lease) Spend(jobs.Spent)       {}
func (l *lease) Ask(open *jobs.OpenAsk) { l.open = open }
func (l *lease) Renew()                 {}

// A stillness is an agent's processes, which do nothing.
type stillness struct{}

func (stillness) Activity() (time.Duration, int64) { return 0, 0 }
func (stillness) Halted() int                      { return 0 }

// A rig is a run without a process, a jail or a broker.
type rig struct {
	*Run
	t      *testing.T
	agent  *speaker
	lease  *lease
	ended  error
	mu     sync.Mutex
	events []jobs.Event
	block  chan struct{} // the log takes nothing before it is closed; nil: it takes all
}

func (g *rig) Append(_ context.Context, events ...jobs.Event) error {
	if g.block != nil {
		<-g.block
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, events...)
	return nil
}

func newRig(t *testing.T, job jobs.Job, block chan struct{}) *rig {
	t.Helper()
	g := &rig{t: t, agent: &speaker{}, lease: &lease{}, block: block}
	secrets, _ := redact.New(nil)
	events := recorder.New(secrets.Event, recorder.Hooks{}, func(err error) { t.Error(err) })
	events.Start(context.Background(), g)
	t.Cleanup(func() {
		if err := events.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ended := func(err error) { g.ended = err }
	g.Run = New(Config{
		Job: job, Log: slog.New(slog.DiscardHandler), Hangs: watchdog.Hangs{}.WithDefaults(), Lease: g.lease, Events: events,
		Append:  func(ctx context.Context, e jobs.Event) error { return g.Append(ctx, e) },
		Secrets: secrets, Inside: inside.NewServer(), Conversation: memory{}, Prompts: conversation.New(conversation.Config{}).Prompts,
		Spent: func(agent.Total) jobs.Spent { return jobs.Spent{} }, Decoder: g.agent, End: ended,
		Recall:    func(control.Question) (inside.Answer, bool) { return inside.Answer{}, false },
		Decided:   func(control.Ask) (control.Message, bool) { return control.Message{}, false },
		KeepStdin: true, Parkable: true, First: true,
	})
	g.terminals = terminals.New(terminals.Config{})
	g.state.watchdog.Start(time.Now(), stillness{})
	return g
}

// says has the agent print a line that means these events.
func (g *rig) says(payloads ...event.Event) {
	g.agent.next = payloads
	g.state.line(agent.Line{Bytes: []byte("{}")})
}

func question(id string) event.Event {
	return event.Make(event.AskOpened{Ask: id, Type: "question", Questions: []byte(`[{"question":"Which?"}]`)})
}

// closed closes the recorder's queue behind all that was put into it, and returns how
// the questions were closed by the log.
func (g *rig) closed() (how []string) {
	g.t.Helper()
	if err := g.cfg.Events.Close(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.events {
		if e.Kind == jobs.AskClosed {
			how = append(how, event.As[event.AskClosed](e).How)
		}
	}
	return how
}

// A question that has had no answer in time is closed as the job says.
func TestAQuestionLapses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ask jobs.Ask
		how string
		end bool
	}{
		{jobs.Ask{}, "expired", false},
		{jobs.Ask{Default: "B"}, "default", false},
		{jobs.Ask{Fail: true}, "expired", true},
	} {
		var job jobs.Job
		job.IdleTimeout, job.Ask = jobs.Duration(time.Hour), tt.ask
		job.Ask.Timeout = jobs.Duration(2 * time.Second)
		g := newRig(t, job, nil)
		g.says(question("q"))
		if found := g.state.look(time.Now().Add(time.Second), false); found.hang != nil || len(g.open()) != 1 || g.lease.open == nil {
			t.Fatalf("before its time: %+v, open %q", found, g.open())
		}
		if found := g.state.look(time.Now().Add(3*time.Second), false); found.hang != nil || len(g.open()) != 0 || g.lease.open != nil {
			t.Errorf("after its time: %+v, open %q", found, g.open())
		}
		if how := g.closed(); !slices.Equal(how, []string{tt.how}) || (g.ended != nil) != tt.end {
			t.Errorf("%+v: closed %q, the run ends with %v", tt.ask, how, g.ended)
		}
	}
}

// A session is parked where its agent does nothing but wait, and nothing has happened
// since that was found.
func TestOnlyAnAgentThatWaitsIsParked(t *testing.T) {
	t.Parallel()
	tool := event.Make(event.ToolStarted{Call: "c"})
	for name, tt := range map[string]struct {
		before, since []event.Event
		stored, parks bool
	}{
		"nothing happens":           {[]event.Event{question("q")}, nil, true, true},
		"no capsule":                {[]event.Event{question("q")}, nil, false, false},
		"a tool runs":               {[]event.Event{question("q"), tool}, nil, true, false},
		"a tool ran":                {[]event.Event{question("q"), tool, event.Make(event.ToolEnded{Call: "c"})}, nil, true, true},
		"something is said since":   {[]event.Event{question("q")}, []event.Event{event.Make(event.Message{})}, true, false},
		"nothing is asked":          {[]event.Event{event.Make(event.Message{})}, nil, true, false},
		"the question is withdrawn": {[]event.Event{question("q"), event.Make(event.AskClosed{Ask: "q"})}, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var job jobs.Job
			job.IdleTimeout, job.Ask.ParkAfter = jobs.Duration(time.Hour), jobs.Duration(time.Second)
			g := newRig(t, job, nil)
			g.says(tt.before...)
			g.state.look(time.Now().Add(2*time.Second), false)
			select {
			case at := <-g.state.capsules:
				if tt.since != nil {
					g.says(tt.since...)
				}
				g.state.park(at, tt.stored, false)
			default:
			}
			if got := g.Report().Parked != nil; got != tt.parks {
				t.Errorf("parked: %t", got)
			}
		})
	}
}

// While the log takes nothing, the run decides on all else: no lock is held that the watch, an answer,
// or a stop would wait for.
func TestNothingWaitsForTheLog(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	var job jobs.Job
	job.IdleTimeout = jobs.Duration(time.Hour)
	g := newRig(t, job, block)
	g.says(question("q"))
	accepted := make(chan error, 1)
	go func() {
		accepted <- g.Control(t.Context(), control.Message{ID: "m", Verb: control.Answer, Ask: "q", Text: "B"}, nil)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for g.waiting() == 0 { // until the answer is being stored
			g.state.look(time.Now(), false)
		}
		for range 1000 {
			g.says(event.Make(event.Message{}))
		}
		g.state.look(time.Now(), false)
		g.state.wrote(1)
		g.Report()
		if err := g.Takes(control.Message{Verb: control.Prompt, Text: "more"}); err != nil {
			t.Errorf("a prompt is refused: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the run waits for the log")
	}
	select {
	case err := <-accepted:
		t.Errorf("a message was accepted that is not stored: %v", err)
	default:
	}
	close(block)
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	<-done
	if how := g.closed(); !slices.Equal(how, []string{"answered"}) {
		t.Errorf("closed %q", how)
	}
}

// A prompt that the agent takes up before it is stored that it was accepted is one that the
// conversation has: it is not sent again. Nor does the turn that has ended by then seem open.
func TestAPromptIsTakenUpBeforeItIsStored(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	g := newRig(t, jobs.Job{}, block)
	accepted := make(chan error, 1)
	go func() {
		accepted <- g.Control(t.Context(), control.Message{ID: "m", Verb: control.Prompt, Text: "more"}, nil)
	}()
	for g.waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	g.agent.state = agent.Idle
	g.says(event.Make(event.InputState{Input: "m", State: "taken"}), event.Make(event.TurnEnded{}))
	close(block)
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	if heard := g.cfg.Prompts.Heard(); !slices.Equal(heard, []string{"m"}) {
		t.Errorf("the conversation has %q, want the prompt", heard)
	}
	if err := g.Control(t.Context(), control.Message{ID: "n", Verb: control.Interrupt}, nil); jobs.Code(err) != jobs.ErrorCode(control.Nothing) {
		t.Errorf("interrupt: %v, want that no turn is open", err)
	}
}

// What is refused because the agent has not read enough was not said to it: its decoder knows nothing of it.
func TestARefusedMessageIsNotSaid(t *testing.T) {
	t.Parallel()
	g := newRig(t, jobs.Job{}, nil)
	for g.state.in.put(make([]byte, control.MaxImageBytes)) {
	}
	err := g.Control(t.Context(), control.Message{ID: "m", Verb: control.Prompt, Text: "more"}, nil)
	if jobs.Code(err) != jobs.ErrorCode(control.Busy) || len(g.agent.said) > 0 {
		t.Errorf("%v, and %q were said", err, g.agent.said)
	}
}

// open are the ids of the questions that are open.
func (g *rig) open() []string {
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	return g.state.questions.open.ids()
}

// waiting counts the control messages that are being stored.
func (g *rig) waiting() int {
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	return g.state.taking
}
