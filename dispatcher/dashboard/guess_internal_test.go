package dashboard

import (
	"fmt"
	"testing"
	"time"
)

// What is remembered of guesses and links is bounded, and forgotten in time.
func TestBounds(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(), time.Now()
	for i := range 3 * addresses {
		l.failed(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), now)
	}
	if len(l.failures) > addresses {
		t.Errorf("%d addresses are remembered", len(l.failures))
	}
	for range tries {
		l.failed("[2001:db8::1]:1", now)
	}
	for address, blocked := range map[string]bool{"[2001:db8::ffff]:9": true, "[2001:db8:0:1::1]:1": false, "192.0.2.1:1": false, "[::ffff:192.0.2.1]:1": false} {
		if wait := l.blocked(address, now.Add(time.Second)); (wait > 0) != blocked {
			t.Errorf("%s waits %v", address, wait)
		}
	}
	if wait := l.blocked("[2001:db8::1]:1", now.Add(tryTime)); wait != 0 {
		t.Errorf("after its time an address waits %v", wait)
	}
	k, codes := newLinks(), map[string]bool{}
	for i := range 2 * mostLinks {
		codes[k.add("x", now.Add(time.Duration(i)))] = true
	}
	if len(k.waiting) != mostLinks || len(codes) != 2*mostLinks {
		t.Errorf("%d links of %d wait", len(k.waiting), len(codes))
	}
	code := k.add("x", now)
	if _, ok := k.take(code, now.Add(linkTime)); ok {
		t.Error("a link works when its minute is over")
	}
}
