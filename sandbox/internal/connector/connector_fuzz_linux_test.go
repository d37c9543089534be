package connector

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// FuzzConnector lets anything be said instead of an answer, with and without
// a descriptor: no request gets one that it must not, and none is left open.
func FuzzConnector(f *testing.F) {
	f.Add([]byte("1\x000"), true)
	f.Add([]byte("1\x00111"), false)
	f.Add([]byte("2\x000"), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, message []byte, rights bool) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(os.NewFile(uintptr(pair[0]), "requests"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer unix.Close(pair[1])
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = unix.Read(pair[1], make([]byte, 512))
			var oob []byte
			if rights {
				oob = unix.UnixRights(pipe[1])
			}
			_ = unix.Sendmsg(pair[1], message, oob, nil, unix.MSG_NOSIGNAL)
			unix.Close(pipe[1])
			_ = unix.Shutdown(pair[1], unix.SHUT_WR)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := a.ask(ctx, jailinit.Request{Verb: jailinit.VerbDial, Args: []string{"tcp", "127.0.0.1:80"}})
		<-answered
		if (got != nil) != (err == nil) || got != nil && (!rights || string(message) != "1\x000") {
			t.Errorf("%q became %v, err %v", message, got, err)
		}
		if got != nil {
			got.Close()
		}
		a.Close()
		// The pipe ends when the last copy of its other end is closed.
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}, 5000); n != 1 {
			t.Errorf("a descriptor is open: %d, %v", n, err)
		}
	})
}
