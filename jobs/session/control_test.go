package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// A room is a session with a listener that notes what was said.
type room struct {
	*session.Log
	id   string
	said []string // read it while no message is sent
	take func(control.Message) error
	stop func()
}

func listen(t *testing.T, s *jobstest.Server, known ...control.Receipt) *room {
	t.Helper()
	r := &room{Log: jobstest.Log(t, s.Connect()), id: jobs.NewID(), take: func(control.Message) error { return nil }}
	var err error
	r.stop, err = r.Listen(r.id, known, func(c control.Message) (control.Receipt, error) {
		if err := r.take(c); err != nil {
			return control.Receipt{}, err
		}
		r.said = append(r.said, c.Text)
		return control.Receipt{ID: c.ID, Verb: c.Verb, Session: r.id, Attempt: 2, State: "accepted"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prompt(text string) control.Message {
	return control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: text}
}

// What is sent is taken once and in order, however often it is sent.
func TestControlKeepsOrderAndTakesOnce(t *testing.T) {
	s := jobstest.Start(t)
	known := control.Receipt{ID: jobs.NewID(), Verb: control.Prompt, Attempt: 1, State: "accepted"}
	r := listen(t, s, known)
	sender := jobstest.Log(t, s.Connect())
	var want []string
	for i := range 50 {
		c := prompt(fmt.Sprint(i))
		first, err := sender.Send(jobstest.Context(t), r.id, c)
		if err != nil || first.ID != c.ID || first.Attempt != 2 {
			t.Fatalf("got %+v, %v", first, err)
		}
		c.Text = "something else under the same id"
		if again, err := sender.Send(jobstest.Context(t), r.id, c); err != nil || again != first {
			t.Errorf("a duplicate got %+v, %v; want %+v", again, err, first)
		}
		want = append(want, fmt.Sprint(i))
	}
	c := prompt("again")
	c.ID = known.ID
	if got, err := sender.Send(jobstest.Context(t), r.id, c); err != nil || got != known {
		t.Errorf("what was accepted before: got %+v, %v", got, err)
	}
	r.stop()
	if !slices.Equal(r.said, want) {
		t.Errorf("taken: %v", r.said)
	}
}

// A message that cannot be delivered says why, and may be sent again.
func TestControlIsRefused(t *testing.T) {
	s := jobstest.Start(t)
	r := listen(t, s)
	sender := jobstest.Log(t, s.Connect())
	r.take = func(c control.Message) error {
		if c.Text == "late" {
			return control.Refuse(control.Finished, "it has ended")
		}
		return errors.New("something broke")
	}
	_, err := sender.Send(jobstest.Context(t), r.id, prompt("late"))
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Message != "it has ended" || !errors.Is(err, jobs.ErrFinished) {
		t.Errorf("got %v", err)
	}
	again := prompt("again")
	_, err = sender.Send(jobstest.Context(t), r.id, again)
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Lost || !strings.Contains(err.Error(), "broke") {
		t.Errorf("got %v", err)
	}
	r.take = func(control.Message) error { return nil }
	if _, err := sender.Send(jobstest.Context(t), r.id, again); err != nil {
		t.Errorf("what was refused is refused for ever: %v", err)
	}
	bad := prompt("")
	if _, err := sender.Send(jobstest.Context(t), r.id, bad); err == nil {
		t.Error("an empty prompt was sent")
	}
	// A client that speaks to the session without this package is validated, too.
	nc := s.Connect()
	subject := "penstock.v1.sessions.default." + r.id + ".control"
	for _, message := range []string{"", "{", `{"verb":"prompt"}`, strings.Repeat("x", control.MaxBytes+1)} {
		msg, err := nc.Request(subject, []byte(message), jobstest.Patience)
		if err != nil || !strings.Contains(string(msg.Data), `"code":"invalid"`) {
			t.Errorf("%.20q: got %v, %v", message, msg, err)
		}
	}
	if err := nc.Publish(subject, nil); err != nil { // as a client that wakes a worker does
		t.Error(err)
	}
	r.stop()
	if !slices.Equal(r.said, []string{"again"}) {
		t.Errorf("taken: %v", r.said)
	}
}

// Without a listener, the sender hears so at once; without an answer, it waits as
// long as it wants to.
func TestControlWithoutAListener(t *testing.T) {
	s := jobstest.Start(t)
	sender := jobstest.Log(t, s.Connect())
	if _, err := sender.Send(jobstest.Context(t), jobs.NewID(), prompt("x")); !errors.Is(err, session.ErrNobody) {
		t.Errorf("got %v, want %v", err, session.ErrNobody)
	}
	if _, err := sender.Send(jobstest.Context(t), "a.b", prompt("x")); err == nil {
		t.Error("a session that is no token was taken")
	}
	r := listen(t, s)
	hold := make(chan struct{})
	r.take = func(control.Message) error { <-hold; return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c := prompt("slow")
	if _, err := sender.Send(ctx, r.id, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the time is over", err)
	}
	close(hold)
	if _, err := sender.Send(jobstest.Context(t), r.id, c); err != nil {
		t.Error(err)
	}
	r.stop()
	if len(r.said) != 1 {
		t.Errorf("taken: %v", r.said)
	}
}

// A broker may take less than a message with images has. Its sender is told at once.
func TestAMessageThatTheBrokerDoesNotTake(t *testing.T) {
	t.Parallel()
	r := listen(t, jobstest.StartNarrow(t, 64<<10))
	defer r.stop()
	c := prompt("look")
	c.Images = []control.Image{{Type: "image/gif", Data: []byte("GIF89a" + strings.Repeat("x", 64<<10))}}
	_, err := r.Send(jobstest.Context(t), r.id, c)
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Invalid || !strings.Contains(refused.Message, "at most 65536: raise its max_payload") {
		t.Errorf("got %v, want that it is refused", err)
	}
}
