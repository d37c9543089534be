package throttle

import (
	"fmt"
	"testing"
	"time"
)

// A client may do a thing in a burst and then at the rate, and another one is not affected.
func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := NewLimiter(10, 3)
	for range 3 {
		if wait := l.Take("a", now); wait != 0 {
			t.Fatalf("within the burst: wait %v", wait)
		}
	}
	if wait := l.Take("a", now); wait != 100*time.Millisecond {
		t.Errorf("beyond the burst: wait %v", wait)
	}
	if wait := l.Take("a", now); wait != 100*time.Millisecond {
		t.Errorf("what was refused counts: wait %v", wait)
	}
	if wait := l.Take("b", now); wait != 0 {
		t.Errorf("another client: wait %v", wait)
	}
	if wait := l.Take("a", now.Add(100*time.Millisecond)); wait != 0 {
		t.Errorf("later: wait %v", wait)
	}
	if wait := NewLimiter(0, 9).Take("a", now); wait != 0 {
		t.Errorf("without a limit: wait %v", wait)
	}
}

// It remembers a bounded number of clients: beyond that, new ones share a limit, and those
// that have been quiet make room.
func TestLimiterIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := NewLimiter(1, 1)
	for n := range most {
		l.Take(fmt.Sprint(n), now)
	}
	if first, second := l.Take("new", now), l.Take("newer", now); first != 0 || second == 0 || len(l.clients) != most {
		t.Errorf("waits %v and %v, %d are known", first, second, len(l.clients))
	}
	if wait := l.Take("later", now.Add(time.Second)); wait != 0 || len(l.clients) != 1 {
		t.Errorf("wait %v, %d are known", wait, len(l.clients))
	}
}

// Of each minute the first failures of a client are told, and the first of all; of the
// others how many there were.
func TestTeller(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var tell Teller
	told := 0
	for range 100 {
		if one, more := tell.Count("a", now); one && more == 0 {
			told++
		}
	}
	if told != each {
		t.Errorf("%d of one client were told", told)
	}
	for n := range 1000 {
		if one, _ := tell.Count(fmt.Sprint(n), now); one {
			told++
		}
	}
	if told != all || len(tell.failed) > all {
		t.Errorf("%d of all were told, %d are remembered", told, len(tell.failed))
	}
	if one, more := tell.Count("a", now.Add(time.Minute)); !one || more != 1100-all {
		t.Errorf("a minute later: %v, %d more", one, more)
	}
	tell.Count("a", now.Add(time.Minute))
	if rest := tell.Rest(); rest != 0 {
		t.Errorf("%d are left", rest)
	}
}

// A host with an address of version 6 has many of them, and is one client.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "[::ffff:192.0.2.7]:80": "::ffff:192.0.2.7", "odd": "odd",
	} {
		if got := Network(address); got != want {
			t.Errorf("%s is of %s, want %s", address, got, want)
		}
	}
}
