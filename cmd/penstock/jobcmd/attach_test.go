package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// On a terminal a key detaches, as its end does. What comes from a file or a pipe is
// typed as it is, and its end is Ctrl-D.
func TestKeysOfAnAttachment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in       string
		tty      bool
		typed    string
		detaches bool
	}{
		{"ls\r\x1dnever", true, "ls\r", true},
		{"ls\r", true, "ls\r", true},
		{"ls\n", false, "ls\n\x04", false},
		{"a\x1db", false, "a\x1db\x04", false},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		keys := make(chan []byte, 64)
		listen(strings.NewReader(c.in), c.tty, keys, end)
		close(keys)
		var typed strings.Builder
		for b := range keys {
			typed.Write(b)
		}
		if detached := errors.Is(context.Cause(ctx), errDetached); typed.String() != c.typed || detached != c.detaches {
			t.Errorf("%q on a terminal %t: typed %q, detached %t", c.in, c.tty, typed.String(), detached)
		}
		end(nil)
	}
}

// What is typed after the size changed comes after it: a program that it starts begins
// with the new size. A program that reads nothing learns of the size all the same.
func TestASizeGoesBeforeWhatIsTyped(t *testing.T) {
	t.Parallel()
	changed, keys := make(chan os.Signal, 8), make(chan []byte, 64)
	var sent []string
	columns, refused, typed := uint16(80), false, int64(0)
	send := func(_ context.Context, r terminal.Request) (terminal.Answer, error) {
		if r.Verb == terminal.Resize {
			sent = append(sent, fmt.Sprint("size ", r.Columns))
			if r.Columns == 80 {
				columns = 100
				changed <- syscall.SIGWINCH
				keys <- []byte("vi\r")
			}
			return terminal.Answer{}, r.Validate()
		}
		sent = append(sent, fmt.Sprintf("%d %q", r.From, r.Data))
		switch {
		case string(r.Data) == "over\r":
			return terminal.Answer{}, control.Refuse(control.Over, "it has ended")
		case !refused: // it reads nothing for now
			refused, columns = true, 120
			changed <- syscall.SIGWINCH
			return terminal.Answer{From: r.From}, nil
		}
		keys <- []byte("over\r")
		typed += int64(len(r.Data))
		return terminal.Answer{From: typed}, nil
	}
	first := terminal.Request{ID: "1", Attempt: 1, Terminal: 1, Verb: terminal.Write}
	(&typist{send, first, func() (rows, cols uint16, ok bool) { return 24, columns, true }, changed}).enter(t.Context(), keys)
	want := []string{"size 80", "size 100", `0 "vi\r"`, "size 120", `0 "vi\r"`, `3 "over\r"`}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}
