package sandbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/stdio"
)

// Streams are the standard streams of a jail. The zero value reads nothing
// and discards everything. Files are never handed in as they are: a
// descriptor of the host can be reopened with other rights from inside.
type Streams struct {
	Stdin     io.Reader
	Stdout    io.Writer
	Stderr    io.Writer // may be the same as Stdout, and then the order of both is kept
	StdinPipe bool      // standard input stays open for Process.Stdin; the field Stdin is ignored
}

// An Exit says how a jail ended.
type Exit struct {
	Code   int            // of the program; 128 + n where signal n ended it
	Signal syscall.Signal // that ended the program, as far as the code tells; else 0
	// Reached lists limits that the jail ran into: FeatureMemory (something
	// was killed for it), FeaturePIDs (something could not be started),
	// FeatureFileSize (a file grew no further, and the program ended by it),
	// FeatureDisk and FeatureInodes (the jail was killed for it), FeatureOutput
	// (the program was slowed, by more than a second in all). That a processor
	// was not to be had, or a file not to be opened, is not known afterwards.
	Reached []Feature
	Stopped bool // by Stop, Close or the end of the context
	Started time.Time
	Ended   time.Time
}

// Success reports whether the program ended by itself with code 0.
func (e Exit) Success() bool { return e.Code == 0 && !e.Stopped }

func (e Exit) String() string {
	s := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != 0 {
		s = "signal: " + e.Signal.String()
	}
	if e.Stopped {
		s += ", stopped"
	}
	for _, f := range e.Reached {
		s += ", limit of " + string(f) + " reached"
	}
	return s
}

// A Process is a jail that was started. Its methods may be called from any
// goroutine and more than once.
type Process struct {
	spec    Spec
	root    func() string
	token   string
	weaker  []Feature
	watched []Feature
	ports   ports
	stdin   *stdio.Stdin
	jail    jail // what differs between systems and mechanisms

	stopOnce sync.Once
	stopping chan struct{} // closed by the first Stop
	killOnce sync.Once
	ending   atomic.Bool   // the jail was killed, or its mechanism has ended
	launched chan struct{} // closed when Start has nothing left to do
	done     chan struct{} // closed when nothing is alive; exit and err are set before

	exit Exit
	err  error
}

// Run starts a jail and waits for its end. The error is about the jail: how
// the program in it ended is in the Exit.
func Run(ctx context.Context, b Backend, spec Spec, streams Streams) (Exit, error) {
	p, err := Start(ctx, b, spec, streams)
	if err != nil {
		return Exit{}, err
	}
	return p.Wait()
}

// Output runs a jail and returns what it wrote to standard output, and no
// more than 16 MiB of it: a longer output is an error, with the beginning.
// Standard error is discarded.
func Output(ctx context.Context, b Backend, spec Spec) ([]byte, Exit, error) {
	out := &stdio.Bounded{Left: 16 << 20}
	exit, err := Run(ctx, b, spec, Streams{Stdout: out})
	if err == nil && out.Dropped > 0 {
		err = fmt.Errorf("output of %s is %d bytes longer than %d", spec.Args[0], out.Dropped, len(out.Bytes()))
	}
	return out.Bytes(), exit, err
}

// Label returns the label of the jail's Spec.
func (p *Process) Label() string { return p.spec.Label }

// Root identifies where the jail's programs come from, see [Command], as they are when it is
// called for the first time.
func (p *Process) Root() string { return p.root() }

// Weaker lists the features that are not enforced for this jail: those that the Spec
// allowed to be absent, and defaults that the host cannot enforce.
func (p *Process) Weaker() []Feature { return append([]Feature(nil), p.weaker...) }

// Watched lists limits that are kept by looking at the jail and killing it,
// because the kernel of this host cannot keep them: the program may be beyond
// them for a moment, by what it uses between two looks.
func (p *Process) Watched() []Feature { return append([]Feature(nil), p.watched...) }

// Listeners returns a listener for each TCP address of Spec.Listen, in order.
// What connects to the address inside is accepted here, outside. They are
// closed when the jail ends.
func (p *Process) Listeners() []net.Listener {
	return append([]net.Listener(nil), p.ports.listeners...)
}

// PacketConns returns a connection of type [*net.UDPConn] for each UDP address
// of Spec.Listen, in order. They are closed when the jail ends. Behind an
// unspecified address, a server must answer from the address that the client asked,
// which is in the message's control data (IP_PKTINFO): a client that asked 127.0.0.2
// does not accept an answer from 127.0.0.1.
func (p *Process) PacketConns() []net.PacketConn {
	return append([]net.PacketConn(nil), p.ports.packets...)
}

// Stdin returns the standard input of the jail, where Streams.StdinPipe was
// set. Writing after the jail's end, or after Close, is an error.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Halted counts the processes inside that a signal has stopped, and nothing has
// continued since.
func (p *Process) Halted() int { return halted(p.jail) }

// Activity is what the jail's processes have done so far: the processor time that
// they had, and the bytes that they read from and wrote to files, pipes and
// sockets. Both are 0 where that is not known: on a system other than Linux, and
// for a jail that a service made out of the sight of this process; the bytes also
// where the kernel does not count them.
func (p *Process) Activity() (cpu time.Duration, io int64) { return activity(p.jail) }

// Done returns a channel that is closed when the jail has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until nothing of the jail is alive and its output is written.
// The error is nil however the program ended, the cause of the context where
// that ended the jail, or what went wrong with the jail or a stream.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Stop asks the program and its process group to end, waits for Spec.Grace,
// and kills what is left. It returns when nothing is alive. If ctx ends
// earlier, so does the grace.
func (p *Process) Stop(ctx context.Context) error {
	p.stopOnce.Do(func() {
		close(p.stopping)
		p.jail.Terminate()
	})
	grace := time.NewTimer(p.spec.Grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	return p.Close(context.WithoutCancel(ctx))
}

// stopWith stops the jail at the end of ctx, unless release is called before.
func (p *Process) stopWith(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = p.Stop(context.WithoutCancel(ctx)) })
}

// Close kills the jail, if it still runs, and returns when nothing of it is
// alive. If that takes longer than ctx allows, the error says so.
func (p *Process) Close(ctx context.Context) error {
	p.stopOnce.Do(func() { close(p.stopping) })
	select {
	case <-p.done:
		return nil
	default:
	}
	p.kill()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close jail %s: processes are still ending: %w", p.token, context.Cause(ctx))
	}
}

func (p *Process) kill() {
	p.killOnce.Do(func() {
		p.ending.Store(true)
		p.jail.Kill()
	})
}

func (p *Process) stopped() bool {
	select {
	case <-p.stopping:
		return true
	default:
		return false
	}
}
