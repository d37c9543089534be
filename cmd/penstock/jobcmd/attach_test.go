package jobcmd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
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
