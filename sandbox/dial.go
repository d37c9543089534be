package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/connector"
)

// Dial connects to a server inside the jail. network is "tcp", "tcp4", "tcp6"
// or "unix". The host of a TCP address is a loopback address, "localhost",
// which tries both of them, or an unspecified address, which means the
// loopback; a unix address is an absolute path in the jail's view. With
// NetworkFull, and without a jail, the loopback is the host's.
//
// The connection is made inside and its descriptor handed out: no process in
// between sees or moves a byte. The descriptor is only accepted if it is a
// connected socket of the requested kind and to the requested address.
//
// Spec.Dial has to be set. It leaves a process of jailinit inside, which has
// 1.5 MiB of memory of its own, up to 3 MiB of pages that it shares with this
// program's file, and about 6 of Limits.PIDs (threads). The program in the jail
// can kill or stop it: then Dial fails, or waits for ctx, and nothing else
// happens.
//
// Errors are of type [*net.OpError]. They wrap syscall.ECONNREFUSED if
// there is no listener, [os.ErrProcessDone] when the jail has ended, [net.ErrClosed]
// when only the process that connects has, the cause of ctx, or a
// [*FieldError] without Spec.Dial.
func (p *Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	targets, err := connector.Targets(network, address)
	if !p.spec.Dial {
		err = errNoDial
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	for _, t := range targets {
		var c net.Conn
		if c, err = p.dial(ctx, t); err == nil {
			return c, nil
		}
		err = &net.OpError{Op: "dial", Net: network, Addr: t, Err: err}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, err
}

var errNoDial = &FieldError{"Dial", "false", "leaves nothing inside that could connect"}

func (p *Process) dial(ctx context.Context, to connector.Target) (net.Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := p.ports.requests.Dial(ctx, to)
	return c, p.explain(err)
}

// explain tells the end of the jail from that of the process that answers.
func (p *Process) explain(err error) error {
	if errors.Is(err, net.ErrClosed) && p.ending.Load() {
		return fmt.Errorf("the jail has ended: %w", os.ErrProcessDone)
	}
	return err
}
