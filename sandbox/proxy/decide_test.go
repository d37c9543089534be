package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Two of the same name wait for the same answer; no answer is a no, and the
// end of a jail is none.
func TestQuestionsAreAskedOnce(t *testing.T) {
	var asked atomic.Int32
	answer := make(chan bool)
	p := New(Config{Ask: func(ctx context.Context, _ string, _ uint16) bool {
		asked.Add(1)
		select {
		case yes := <-answer:
			return yes
		case <-ctx.Done():
			return true // too late
		}
	}})
	got := make(chan bool)
	for range 20 {
		go func() { got <- p.permissions.permit(t.Context(), "a.test", 443) }()
	}
	answer <- true
	for range 20 {
		if !<-got {
			t.Error("one of those who waited got a no")
		}
	}
	jail, end := context.WithCancel(t.Context())
	go func() { got <- p.permissions.permit(jail, "b.test", 443) }()
	for asked.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	end()
	if <-got {
		t.Error("the end of the jail was a yes")
	}
	go func() { got <- p.permissions.permit(t.Context(), "b.test", 443) }()
	answer <- true
	if !<-got || asked.Load() != 3 {
		t.Errorf("asked %d times, want again after a jail that ended", asked.Load())
	}
	close(answer) // no to everything
	for i := range 2 * maxQuestions {
		if p.permissions.permit(t.Context(), fmt.Sprintf("x%d.test", i), 443) {
			t.Fatal("yes")
		}
	}
	if n := asked.Load(); n != maxQuestions+1 { // b.test twice
		t.Errorf("asked %d times", n)
	}
}

func TestNamesAreBudgeted(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "*.allowed.test"), MaxNames: 2})
	for name, want := range map[string]string{"a": "502", "b": "502"} {
		if got := w.say(t, "CONNECT "+name+".allowed.test:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := w.say(t, "CONNECT secret.allowed.test:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "429") || w.last().Reason != ReasonBudget {
		t.Errorf("the third: got %q", got)
	}
	if got := w.say(t, "CONNECT a.allowed.test:443 HTTP/1.1\r\n\r\n"); !strings.Contains(got, "502") {
		t.Errorf("the first again: got %q", got)
	}
	if n := w.resolved.Load(); n != 3 {
		t.Errorf("%d names were looked up", n)
	}
}
