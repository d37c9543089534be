package question_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

func bus(t *testing.T, s *jobstest.Server) question.Bus {
	t.Helper()
	conn, err := wire.New(s.Connect(), "")
	if err != nil {
		t.Fatal(err)
	}
	names, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	return question.Bus{Conn: conn, Names: names}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	asker, leader := bus(t, s), bus(t, s)
	var answer string
	if err := asker.Ask(t.Context(), "echo", "x", &answer); !errors.Is(err, question.ErrUnanswered) {
		t.Errorf("without a leader: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		err := leader.Serve(ctx, map[string]question.Answer{
			"echo": func(_ context.Context, q []byte) (any, error) { return string(q), nil },
			"fail": func(context.Context, []byte) (any, error) { return nil, errors.New("no idea") },
			"long": func(context.Context, []byte) (any, error) { return strings.Repeat("x", 2<<20), nil },
		})
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	defer serving.Wait()
	defer stop()
	for asker.Ask(t.Context(), "echo", "x", &answer) != nil {
		if t.Context().Err() != nil {
			t.Fatal("the leader does not answer")
		}
	}
	if answer != `"x"` {
		t.Errorf("answer %s", answer)
	}
	for _, kind := range []string{"fail", "long", "unknown"} {
		if err := asker.Ask(t.Context(), kind, "x", &answer); !errors.Is(err, question.ErrUnanswered) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	var number int
	if err := asker.Ask(t.Context(), "echo", "x", &number); !errors.Is(err, question.ErrUnanswered) {
		t.Errorf("an answer of another kind: %v", err)
	}
	if err := asker.Ask(t.Context(), "echo", func() {}, &answer); err == nil {
		t.Error("a question that is no JSON")
	}
}
