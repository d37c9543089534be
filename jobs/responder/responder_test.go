package responder_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/responder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// An answer that a message cannot hold is refused in words.
func TestAnswersLargerThanAMessage(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	names, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	large := responder.Handler{Row: operation.Caps.Row, Do: func(context.Context, responder.Call) (any, error) { return strings.Repeat("x", 2<<20), nil }}
	go func() { ended <- responder.Serve(ctx, nc, names, []responder.Handler{large}) }()
	var got *nats.Msg
	for end := time.Now().Add(jobstest.Patience); got == nil; {
		if got, err = nc.Request(names.API("caps"), nil, jobstest.Patience); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if got.Header.Get(micro.ErrorCodeHeader) != "too_large" || !strings.Contains(string(got.Data), "ask for less") {
		t.Errorf("it is answered with %v %.200s", got.Header, got.Data)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
