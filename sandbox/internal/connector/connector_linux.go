package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/jail"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// A Connector is the runner's end of the requests to the process inside that
// answers them. See [jailinit.Request] for what goes over the socket.
//
// What answers may be in the agent's hands. So its answers are data: an id
// that waits, an error's number, or one descriptor that is checked. Anything
// else ends the conversation, and only Dial depends on it.
type Connector struct {
	conn  *net.UnixConn
	write chan struct{} // holds one token; the goroutine that takes it may write
	ended chan struct{} // closed when there will be no further answer

	mu      sync.Mutex
	last    uint64                 // guarded by mu; the id of the latest request
	waiting map[uint64]chan answer // guarded by mu; nil if the caller has given up
}

type answer struct {
	errno syscall.Errno
	file  *os.File // nil if errno is not 0
}

// New takes over the socket and begins to read it. Close ends that.
func New(socket *os.File) (*Connector, error) {
	defer socket.Close()
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, err
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("the socket of requests is none")
	}
	a := &Connector{
		conn: c, write: make(chan struct{}, 1), ended: make(chan struct{}), waiting: map[uint64]chan answer{},
	}
	a.write <- struct{}{}
	go a.read()
	return a, nil
}

// Close ends the conversation.
func (a *Connector) Close() {
	a.conn.Close()
	<-a.ended
}

// read hands answers to their callers, until the socket ends or says
// something that it must not.
func (a *Connector) read() {
	defer close(a.ended)
	defer a.conn.Close()
	// Room for more than one descriptor: that there were more is to be seen.
	buf, oob := make([]byte, jailinit.MaxMessage), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := a.conn.ReadMsgUnix(buf, oob)
		_, files := jail.Ancillary(oob[:oobn])
		ok := err == nil && n > 0 && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 && a.deliver(buf[:n], files)
		if !ok {
			for _, f := range files {
				f.Close()
			}
			return
		}
	}
}

// deliver reports whether the message was an answer to what was asked; then
// the files are in other hands.
func (a *Connector) deliver(message []byte, files []*os.File) bool {
	m, err := jailinit.DecodeAnswer(message)
	if err != nil || len(files) > 1 || (m.Errno == 0) != (len(files) == 1) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	to, asked := a.waiting[m.ID]
	if !asked {
		return false
	}
	delete(a.waiting, m.ID)
	got := answer{errno: syscall.Errno(m.Errno)}
	if len(files) == 1 {
		got.file = files[0]
	}
	switch {
	case to != nil:
		to <- got // has room for it
	case got.file != nil:
		got.file.Close()
	}
	return true
}

// ask sends a request, with files, and waits for its answer.
func (a *Connector) ask(ctx context.Context, r jailinit.Request, files ...*os.File) (*os.File, error) {
	id, got := a.expect()
	r.ID = id
	if err := a.send(ctx, r, files...); err != nil {
		a.forget(id)
		return nil, err
	}
	select {
	case r := <-got:
		return r.result()
	case <-a.ended:
		select {
		case r := <-got: // the last thing that was said
			return r.result()
		default:
			return nil, errNoConnector
		}
	case <-ctx.Done():
		if a.abandon(id) {
			// No caller waits for the answer, but the socket inside should not
			// wait either. If this fails, it does until the kernel gives up.
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = a.send(late, jailinit.Request{ID: id, Verb: jailinit.VerbCancel})
		} else if r := <-got; r.file != nil {
			r.file.Close()
		}
		return nil, context.Cause(ctx)
	}
}

var errNoConnector = fmt.Errorf("the process inside that connects is gone: %w", net.ErrClosed)

func (r answer) result() (*os.File, error) {
	if r.errno != 0 {
		return nil, fmt.Errorf("inside the jail: %w", r.errno)
	}
	return r.file, nil
}

func (a *Connector) expect() (uint64, chan answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	got := make(chan answer, 1)
	a.waiting[a.last] = got
	return a.last, got
}

// forget takes back an id that was never sent.
func (a *Connector) forget(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

// abandon reports whether the answer is still to come; it is then dropped.
func (a *Connector) abandon(id uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits := a.waiting[id]
	if waits {
		a.waiting[id] = nil
	}
	return waits
}

// send writes one message. The queue holds ten, and the agent may have stopped the
// process that should read them.
func (a *Connector) send(ctx context.Context, r jailinit.Request, files ...*os.File) error {
	select {
	case <-a.write:
	case <-a.ended:
		return errNoConnector
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { a.write <- struct{}{} }()
	if err := a.conn.SetWriteDeadline(time.Time{}); err != nil {
		return errNoConnector
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = a.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err := a.conn.WriteMsgUnix(r.Encode(), rights, nil)
	if !stop() {
		<-expired // or it would interrupt the next writer
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return errNoConnector
	}
}
