//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"net"
	"time"
)

// A Leftover is a jail whose starter is dead.
type Leftover struct{ Label string }

// Leftovers finds nothing: what is left of a jail cannot be told from other
// processes on this system.
func Leftovers(context.Context, string, ...Backend) ([]Leftover, error) { return nil, nil }

// Kill does nothing.
func (Leftover) Kill(context.Context) error { return nil }

// These stand in for what only Linux can watch and dial.

func (*plumbing) unread() bool { return false }

var kept []Feature

type watch struct{}

func (*watch) features(Limits) []Feature { return nil }

func (*jail) over() bool { return false }

func (*jail) activity() (time.Duration, int64) { return 0, 0 }

func (*jail) terminal(context.Context, []string, []string, [2]uint16) (*Terminal, error) {
	return nil, errors.New("no terminal can be opened in a jail of this system")
}

// Resize does nothing.
func (*Terminal) Resize(uint16, uint16) error { return nil }

func endOfTerminal(err error) error { return err }

func decodeEnd([]byte, error) (Exit, error) { return Exit{}, nil }

func (*jail) dial(context.Context, target) (net.Conn, error) {
	return nil, errors.New("nothing can be dialled in a jail of this system")
}
