package socket

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-run/penstock/jobs/terminal"
)

// A link is a connection with calls and replies.
type link struct {
	socket   *websocket.Conn
	maxQuiet time.Duration
	silence  *time.Timer   // closes the socket
	gone     chan struct{} // closed when nothing is read any more
	why      error         // set before

	mu      sync.Mutex // guards what follows
	number  uint64     // of the last call
	waiting map[uint64]chan terminal.Answer
}

func newLink(maxQuiet time.Duration) *link {
	return &link{maxQuiet: maxQuiet, gone: make(chan struct{}), waiting: map[uint64]chan terminal.Answer{}}
}

// begin begins to read replies.
func (l *link) begin() {
	l.silence = time.AfterFunc(l.maxQuiet, func() { _ = l.socket.CloseNow() }) // read says that it is lost
	go l.read()
}

// heard notes that the server lives.
func (l *link) heard() { l.silence.Reset(l.maxQuiet) }

func (l *link) isLost() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// close closes the connection, and returns when nothing is read from it any more. It does
// not wait for the server to agree: users leave where nothing is answered.
func (l *link) close() {
	_ = l.socket.CloseNow() // it may be lost already
	<-l.gone
}

// read hands out replies until the connection ends.
func (l *link) read() {
	defer close(l.gone)
	defer l.silence.Stop()
	for {
		_, data, err := l.socket.Read(context.Background())
		if err != nil {
			l.why = err
			return
		}
		l.heard()
		var reply terminal.Reply
		if err := json.Unmarshal(data, &reply); err != nil {
			l.why = fmt.Errorf("a reply: %w", err)
			_ = l.socket.CloseNow() // nothing that follows would be understood
			return
		}
		l.hand(reply)
	}
}

// hand gives a reply to its call, if that still waits.
func (l *link) hand(reply terminal.Reply) {
	l.mu.Lock()
	waits := l.waiting[reply.Number]
	delete(l.waiting, reply.Number)
	l.mu.Unlock()
	if waits != nil {
		waits <- reply.Answer // it has room for the one
	}
}

// ask makes a call.
func (l *link) ask(ctx context.Context, r terminal.Request, within time.Duration) (terminal.Answer, error) {
	reply := make(chan terminal.Answer, 1)
	number := l.enter(reply)
	defer l.leave(number)
	data, err := json.Marshal(terminal.Call{Number: number, Request: r})
	if err != nil {
		return terminal.Answer{}, fmt.Errorf("request about a terminal: %w", err)
	}
	// A context that ends within a message closes the connection, which others use.
	limited, done := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer done()
	if err := l.socket.Write(limited, websocket.MessageText, data); err != nil {
		return terminal.Answer{}, lost(err)
	}
	select {
	case answer := <-reply:
		return answer, nil
	case <-l.gone:
		err = lost(l.why)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select {
	case answer := <-reply: // the last that came, or while ctx ended
		return answer, nil
	default:
		return terminal.Answer{}, err
	}
}

func (l *link) enter(reply chan terminal.Answer) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.waiting[l.number] = reply
	return l.number
}

func (l *link) leave(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, number)
}
