package terminals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/none"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A log is what a Set tells.
type log struct {
	mu    sync.Mutex
	text  string
	kinds []jobs.Kind
	cast  bytes.Buffer
	prove error
}

func (l *log) add(events ...event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		var d event.Terminal
		if json.Unmarshal(e.Data, &d) == nil {
			l.text += d.Text
		}
		l.kinds = append(l.kinds, e.Kind)
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// start starts an agent that waits, and returns the terminals beside it.
func start(t *testing.T, l *log) *Set {
	t.Helper()
	spec := sandbox.Spec{Args: []string{"sleep", "100"}, Dial: true, Workspace: t.TempDir()}
	p, err := sandbox.Start(t.Context(), &none.Backend{}, spec.Allow(none.Unenforced()...), sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Attempt: 3, First: 5, Start: p.Terminal, Output: l.add,
		Prove: func(_ context.Context, e jobs.Event) error { l.add(event.Event{Event: e}); return l.prove },
		Keep: func(_ context.Context, _ string, content io.Reader) error {
			_, err := l.cast.ReadFrom(content)
			return err
		},
		Clean: func(w io.Writer) io.WriteCloser { return plain{w} },
	})
	t.Cleanup(func() {
		s.Close()
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t *testing.T, s *Set, args ...string) terminal.Info {
	t.Helper()
	answer, ours := s.Answer(t.Context(), terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: args})
	if !ours || answer.Error != nil {
		t.Fatalf("got %+v, %v", answer, ours)
	}
	return answer.Terminals[0]
}

// An event has whole characters, however the program writes them, and what is
// no character at all is replaced.
func TestWholeCharacters(t *testing.T) {
	l := &log{}
	s := start(t, l)
	const slowly = `stty -onlcr; printf 'a\303'; sleep 0.6; printf '\251\342\202'; sleep 0.6; printf '\254\377z\360\237'`
	at := open(t, s, "sh", "-c", slowly)
	if at.Terminal != 5 {
		t.Errorf("it has the number %d", at.Terminal)
	}
	var seen []byte
	for {
		answer, _ := s.Answer(t.Context(), terminal.Request{Verb: terminal.Read, Attempt: 3, Terminal: 5, From: int64(len(seen))})
		seen = append(seen, answer.Data...)
		if answer.Exit != nil {
			break
		}
	}
	if want := "a\303\251\342\202\254\377z\360\237"; string(seen) != want {
		t.Errorf("who looks sees %q, want the bytes %q", seen, want)
	}
	s.Close()
	if want := "aé€\uFFFDz\uFFFD"; l.text != want {
		t.Errorf("the events tell %q, want %q", l.text, want)
	}
	if lines := strings.Split(strings.TrimSpace(l.cast.String()), "\n"); len(lines) < 4 || !strings.HasPrefix(lines[0], `{"env"`) {
		t.Errorf("recorded:\n%s", l.cast.String())
	}
	if s.Opened() != 1 {
		t.Errorf("%d were opened", s.Opened())
	}
}

// What is for another attempt is not answered by this one, or refused.
func TestAttempts(t *testing.T) {
	l := &log{}
	s := start(t, l)
	open(t, s, "cat")
	ask := func(attempt int) (terminal.Answer, bool) {
		return s.Answer(t.Context(), terminal.Request{Verb: terminal.Resize, Attempt: attempt, Terminal: 5, Rows: 2, Columns: 2})
	}
	if answer, ours := ask(3); !ours || answer.Error != nil || answer.Attempt != 3 {
		t.Errorf("ours: %+v, %v", answer, ours)
	}
	if answer, ours := ask(2); !ours || answer.Error == nil || answer.Error.Code != control.Over {
		t.Errorf("an earlier one's: %+v, %v", answer, ours)
	}
	if _, ours := ask(4); ours {
		t.Error("what a later attempt has to answer was answered")
	}
	l.prove = jobs.ErrFenced
	if _, ours := s.Answer(t.Context(), terminal.Request{Verb: terminal.Open, ID: jobs.NewID()}); ours {
		t.Error("an attempt that was followed answered")
	}
	l.prove = errors.New("no broker")
	answer, _ := s.Answer(t.Context(), terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Terminal: 5})
	if answer.Error == nil || answer.Error.Code != control.Lost {
		t.Errorf("without a log: %+v", answer)
	}
	l.prove = nil
	s.Close()
	answer, _ = s.Answer(t.Context(), terminal.Request{Verb: terminal.Open, ID: jobs.NewID()})
	if answer.Error == nil || answer.Error.Code != control.NotReady {
		t.Errorf("after the end: %+v", answer)
	}
}
