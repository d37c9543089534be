package reviewcmd

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Answers end with the input, and an interruption does not wait for a line.
func TestAnswers(t *testing.T) {
	t.Parallel()
	typed := read(t.Context(), strings.NewReader(" a \nq"))
	for _, want := range []string{"a", "q"} {
		if got, err := typed.next(t.Context()); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := typed.next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	in, out := io.Pipe()
	typed = read(ctx, in)
	stop()
	if _, err := typed.next(ctx); cli.Code(err) != cli.ExitInterrupted {
		t.Errorf("interrupted: %v", err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}
