package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/connector"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// Resize tells the programs in the terminal how many rows and columns it has.
func (t *Terminal) Resize(rows, columns uint16) error {
	return connector.Resize(t.master, rows, columns)
}

// endOfTerminal returns io.EOF if the kernel says that the other side is
// closed.
func endOfTerminal(err error) error {
	if errors.Is(err, syscall.EIO) {
		return io.EOF
	}
	return err
}

func decodeEnd(b []byte, err error) (Exit, error) {
	if err == nil && len(b) == 0 {
		return Exit{}, fmt.Errorf("how the terminal's program ended is not known: %w", os.ErrProcessDone)
	}
	if err != nil {
		return Exit{Stopped: true}, nil // Close has ended it
	}
	code, signal, err := jailinit.DecodeEnd(b)
	return Exit{Code: code, Signal: syscall.Signal(signal)}, err
}
