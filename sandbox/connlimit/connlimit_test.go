package connlimit

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a connection, and whether it was closed.
type pipe struct {
	net.Conn
	closed bool
}

func (p *pipe) Close() error { p.closed = true; return nil }

func admit(t *testing.T, l *Limit) (*Conn, *pipe) {
	t.Helper()
	p := &pipe{}
	c := l.Try(p)
	if c == nil {
		t.Fatal("there was no room")
	}
	return c, p
}

func TestWhoMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(3)
		idle, idlePipe := admit(t, l)
		if !idle.Begin() {
			t.Fatal("it is closed")
		}
		idle.End()
		silent, silentPipe := admit(t, l)
		busy, busyPipe := admit(t, l)
		if !busy.Begin() {
			t.Fatal("it is closed")
		}
		time.Sleep(2 * Grace)
		next, nextPipe := admit(t, l)
		if !silentPipe.closed || idlePipe.closed || silent.Begin() {
			t.Error("the one that has never asked for anything does not go first")
		}
		admit(t, l) // the next one is too young to go
		if !idlePipe.closed || nextPipe.closed || idle.Begin() {
			t.Error("the one that is idle does not go then")
		}
		if !next.Begin() || l.Try(&pipe{}) != nil {
			t.Error("one that is new, or served, is closed for another one")
		}
		time.Sleep(2 * Grace)
		admit(t, l)
		if l.Try(&pipe{}) != nil || busyPipe.closed || nextPipe.closed {
			t.Error("one that is served is closed for another one")
		}
	})
}

// Admit waits for connections that are served or new, and not beyond the end.
func TestWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1)
		first, _ := admit(t, l)
		first.Begin()
		go func() { time.Sleep(time.Second); _ = first.Close() }()
		began := time.Now()
		second := l.Admit(&pipe{}, nil)
		if took := time.Since(began); second == nil || took != time.Second {
			t.Errorf("there was room after %v", took)
		}
		began = time.Now()
		if third := l.Admit(&pipe{}, nil); third == nil || time.Since(began) < Grace || second.Begin() {
			t.Error("one that was new had no time to ask")
		}
		l = New(0)
		done, last := make(chan struct{}), &pipe{}
		close(done)
		if l.Admit(last, done) != nil || !last.closed {
			t.Error("it waits beyond the end, or leaves the connection open")
		}
	})
}
