package sandbox

import (
	"context"
	"io"
	"os"
	"sync"
)

// A Terminal is one inside the jail, with a program that leads its session. Its
// methods may be called from any goroutine.
//
// Read returns the program's output, which is hostile and may contain sequences of
// control characters. If it is not read, the program stops, as in a halted
// terminal, and nothing else does. Read ends with [io.EOF] when
// the program has ended and all of its output is read. Write types; if the program
// does not read, it waits until the program does, or for the end.
type Terminal struct {
	master *os.File
	status *os.File // says how the program ended; closing it ends the program
	done   chan struct{}
	exit   Exit  // set before done is closed
	err    error // the same
	hangUp sync.Once
}

// Terminal starts a program in a new terminal of so many rows and columns. The
// program is in the directory and environment in which the agent was started,
// with env put over it, and behind the same walls; args[0] is looked for in the
// PATH of that. It dies with the jail.
//
// Spec.Dial has to be set. A jail may have 64 terminals at once. The agent is
// the same user as the program: it can see what is typed by looking into it,
// and end it.
//
// An error wraps what the kernel said inside, syscall.ENOENT where there is no
// such program; [os.ErrProcessDone] when the jail has ended, [net.ErrClosed]
// when the process inside that would start it has; or it is a [*FieldError]
// where the jail has none of that.
func (p *Process) Terminal(ctx context.Context, args, env []string, rows, columns uint16) (*Terminal, error) {
	if !p.spec.Dial {
		return nil, errNoTerminal
	}
	if len(args) == 0 {
		return nil, &FieldError{"Args", "", "names no program for the terminal"}
	}
	master, status, err := p.ports.requests.Terminal(ctx, args, env, [2]uint16{rows, columns})
	if err != nil {
		return nil, p.explain(err)
	}
	t := &Terminal{master: master, status: status, done: make(chan struct{})}
	go t.follow() // ends with the program, which ends with the jail
	return t, nil
}

var errNoTerminal = &FieldError{"Dial", "false", "leaves nothing inside that could start a terminal's program"}

// Read reads what the program writes.
func (t *Terminal) Read(b []byte) (int, error) {
	n, err := t.master.Read(b)
	return n, endOfTerminal(err)
}

// Write types.
func (t *Terminal) Write(b []byte) (int, error) {
	n, err := t.master.Write(b)
	return n, endOfTerminal(err)
}

// Done returns a channel that is closed when the program has ended.
func (t *Terminal) Done() <-chan struct{} { return t.done }

// Wait waits for the program's end. The error says that how it ended is not
// known: the jail, or the process inside that could tell, has ended first.
func (t *Terminal) Wait() (Exit, error) {
	<-t.done
	return t.exit, t.err
}

// Close hangs up: it kills the program and the process group that it leads, the
// kernel signals all other programs in the terminal, and no process can read or write
// any more.
func (t *Terminal) Close() error {
	t.hangUp.Do(func() { t.status.Close() })
	<-t.done
	return t.master.Close()
}

// follow waits for the reported end.
func (t *Terminal) follow() {
	defer close(t.done)
	b, err := io.ReadAll(io.LimitReader(t.status, 16))
	t.hangUp.Do(func() { t.status.Close() })
	t.exit, t.err = decodeEnd(b, err)
}
