package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// A connection for the jail is decided and counted as one of its own.
func TestConnect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.CopyN(c, c, 4)
			})
		}
	})
	defer l.Close()
	rules, err := ParseRules("allowed.test:7000", "loop.test:7000", "[::1]:7000", "gone.test:7000")
	if err != nil {
		t.Fatal(err)
	}
	var decided []Decision
	var closed, bytes int64
	p := New(Config{
		Rules: rules, MaxBytes: 12,
		Resolve: func(_ context.Context, host string) (all []netip.Addr, err error) {
			for _, s := range names[host] {
				all = append(all, netip.MustParseAddr(s))
			}
			return all, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		},
		Hooks: Hooks{Decided: func(d Decision) { decided = append(decided, d) }, Closed: func(_ Decision, sent, received int64) { closed, bytes = closed+1, bytes+sent+received }},
	})
	for authority, want := range map[string]string{
		"evil.test:7000": "not on the list", "allowed.test:443": "not on the list", "loop.test:7000": "private network",
		"gone.test:7000": "cannot be resolved", "allowed.test": "is no host and port", "a@allowed.test:7000": "is no host and port", "0x7f000001:7000": "is no host and port",
	} {
		if c, err := p.Connect(t.Context(), authority); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %q", authority, c, err, want)
		}
	}
	for _, d := range decided {
		if d.Allowed || d.Reason == "" {
			t.Errorf("decided %+v", d)
		}
	}
	decided = nil
	say := func(authority string) error {
		c, err := p.Connect(t.Context(), authority)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("abcd")); err != nil {
			return err
		}
		_, err = io.ReadFull(c, make([]byte, 4))
		_ = c.Close() // counts once
		return err
	}
	if err := say("allowed.test:7000"); err != nil {
		t.Fatal(err)
	}
	if len(decided) != 1 || !decided[0].Allowed || closed != 1 || bytes != 8 {
		t.Errorf("decided %+v; %d closed with %d bytes", decided, closed, bytes)
	}
	if err := say("[::1]:7000"); err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("beyond the budget: %v", err)
	}
	if err := say("allowed.test:7000"); err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("after the budget: %v", err)
	}
}
