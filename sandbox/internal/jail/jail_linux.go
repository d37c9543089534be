package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// A Jail is what one mechanism makes. Processes in it are held by descriptor where
// possible: a number may belong to another process by the time it is used.
type Jail interface {
	// Begin completes the arguments of cmd, hands it descriptors and starts it,
	// on the calling thread. If not clean, the thread must not be used again.
	Begin(cmd *exec.Cmd) (clean bool, err error)
	// Meet returns when the agent is executed, with the sockets that lead into the
	// jail: one for each address of its configuration, and that of the connector
	// last. It is called once after each Begin that has succeeded. The end of ctx
	// interrupts it.
	Meet(ctx context.Context) ([]*os.File, error)
	// Terminate asks the agent's process group to end.
	Terminate()
	// Kill begins the end of everything inside. It is called once at most.
	Kill()
	// End waits until nothing inside is alive. The child has ended, but its exit
	// says only that the agent is. Sealed says that no process can have left the
	// jail and still hold its output.
	End() (sealed bool, err error)
	// Report says how the agent ended, once End has returned: as jailinit has said,
	// or else as the end of our child lets guess. Stopped says that the jail was
	// stopped, or killed.
	Report(child *os.ProcessState, stopped bool) Report
	// Processes returns the number of a process of which all in the jail descend,
	// and of one that sees its files. Either is 0 where it is not known.
	Processes() (top, first int)
	// Remove undoes what New made. It comes last, also after a Begin that failed.
	Remove() error
}

// A Report says how an agent ended.
type Report struct {
	Code    int
	Signal  syscall.Signal
	Reached []string // limits that a control group kept, in the words of package cgroup
}

// A Config describes a jail.
type Config struct {
	Token  string
	Limits cgroup.Limits
	Layers Layers
	Env    []string // of the commands that end a served jail
	// Bind gives a socket of the jail's network an address that takes a privilege.
	Bind func(address string, socket *os.File) error
	// Unread reports whether output of our child waits for a reader.
	Unread func() bool
}

// New makes what has to be there before the program of a mechanism starts; nil is
// a program without a jail. The step is the one that failed.
func New(m mechanism.Mechanism, c Config) (j Jail, step string, err error) {
	switch m := m.(type) {
	case mechanism.Contained:
		return newContained(m, c)
	case mechanism.Supervised:
		return newSupervised(m, c)
	case mechanism.Served:
		return newServed(m, c)
	case nil:
		return newDirect(c)
	}
	return nil, "start", fmt.Errorf("a mechanism of type %T is not known", m)
}

// A child is the program of a mechanism, our child in a control group of its own.
type child struct {
	group  *cgroup.Group
	layers Layers
	token  string
	main   *os.Process // set by start
}

func newChild(c Config) (*child, error) {
	group, err := cgroup.New(c.Token, c.Limits)
	return &child{group: group, layers: c.Layers, token: c.Token}, err
}

func (c *child) start(cmd *exec.Cmd) (clean bool, err error) {
	cmd.Args = complete(cmd.Args, c.token, "")
	clean, err = c.layers.start(cmd, c.group)
	c.main = cmd.Process
	return clean, err
}

func (c *child) remove() error { return errors.Join(c.group.Remove(), c.layers.remove()) }

func (c *child) pid() int { return c.main.Pid }

// report is what the end of the child and the control group say.
func (c *child) report(child *os.ProcessState) Report {
	r := guess(child)
	r.Reached = c.group.Reached()
	return r
}

// guess reads the exit code of a program that ends as its own child did.
func guess(child *os.ProcessState) (r Report) {
	r.Code = child.ExitCode()
	if ws, ok := child.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Code = 128 + int(ws.Signal())
	}
	return r.withSignal()
}

// withSignal reads the signal from the code.
func (r Report) withSignal() Report {
	if r.Code > 128 && r.Code <= 128+64 {
		r.Signal = syscall.Signal(r.Code - 128)
	}
	return r
}

// direct is a program without a jail.
type direct struct{ child *child }

func newDirect(c Config) (Jail, string, error) {
	child, err := newChild(c)
	if err != nil {
		return nil, "limits", err
	}
	return &direct{child}, "", nil
}

func (d *direct) Begin(cmd *exec.Cmd) (clean bool, err error) { return d.child.start(cmd) }

func (d *direct) Meet(context.Context) ([]*os.File, error) { return nil, nil }

func (d *direct) Terminate() { _ = d.child.main.Signal(unix.SIGTERM) } // unless it has ended

func (d *direct) Kill() { _ = d.child.main.Kill() }

func (d *direct) End() (sealed bool, err error) {
	d.child.group.Kill()
	return true, nil
}

func (d *direct) Report(child *os.ProcessState, _ bool) Report { return d.child.report(child) }

func (d *direct) Processes() (top, first int) { return d.child.pid(), 0 }

func (d *direct) Remove() error { return d.child.remove() }
