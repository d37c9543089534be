//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/connector"
)

// A Leftover is a jail whose starter is dead.
type Leftover struct{ Label string }

// Leftovers finds nothing: what is left of a jail cannot be told from other
// processes on this system.
func Leftovers(context.Context, string, ...Keeper) ([]Leftover, error) { return nil, nil }

// Kill does nothing.
func (Leftover) Kill(context.Context) error { return nil }

// These stand in for what only Linux can watch and dial.

var kept []Feature

// Resize does nothing.
func (*Terminal) Resize(uint16, uint16) error { return nil }

func endOfTerminal(err error) error { return err }

func decodeEnd([]byte, error) (Exit, error) { return Exit{}, nil }

type requester struct{}

func (*requester) Close() {}

func (*requester) Dial(context.Context, connector.Target) (net.Conn, error) {
	return nil, errors.New("nothing can be dialled in a jail of this system")
}

func (*requester) Terminal(context.Context, []string, []string, [2]uint16) (master, status *os.File, err error) {
	return nil, nil, errors.New("no terminal can be opened in a jail of this system")
}

func activity(jail) (time.Duration, int64) { return 0, 0 }
