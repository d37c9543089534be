package policy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAskerAsksOnceAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, at := map[Question]int{}, 0
		a := NewAsker(func(ctx context.Context, q Question) bool {
			mu.Lock()
			asked[q]++
			at++
			if at > 1 {
				t.Error("two questions at once")
			}
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			at--
			mu.Unlock()
			return q.What != "no"
		}, 0)
		var all sync.WaitGroup
		for range 5 {
			for what, want := range map[string]bool{"yes": true, "no": false} {
				all.Go(func() {
					if got := a.Allows(t.Context(), Question{KindHost, what}); got != want {
						t.Errorf("%s: got %v", what, got)
					}
				})
			}
		}
		all.Wait()
		if len(asked) != 2 || asked[Question{KindHost, "yes"}] != 1 || asked[Question{KindHost, "no"}] != 1 {
			t.Errorf("asked %v", asked)
		}
	})
}

func TestNoAnswerIsNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := NewAsker(func(ctx context.Context, _ Question) bool { <-ctx.Done(); return true }, 0)
		if a.Allows(t.Context(), Question{KindHost, "a"}) || time.Since(began) != 30*time.Second {
			t.Errorf("a late yes counts, after %v", time.Since(began))
		}
		if a.Allows(t.Context(), Question{KindHost, "a"}) || time.Since(began) != 30*time.Second {
			t.Error("the same is asked again")
		}
		// Waiting for one's turn ends with the jail, and is no answer.
		ctx, cancel := context.WithCancel(t.Context())
		go a.Allows(t.Context(), Question{KindHost, "b"})
		synctest.Wait()
		cancel()
		if a.Allows(ctx, Question{KindHost, "c"}) {
			t.Error("a jail that has ended was answered")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, answered := a.answers[Question{KindHost, "c"}]; answered || len(a.answers) != 2 {
			t.Errorf("got %v, want answers to a and b only", a.answers)
		}
		if (*Asker)(nil).Allows(t.Context(), Question{}) {
			t.Error("nobody said yes")
		}
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	asked := 0
	a := NewAsker(func(context.Context, Question) bool { asked++; return true }, 0)
	for i := range 2 * maxQuestions {
		if got := a.Allows(t.Context(), Question{KindHost, fmt.Sprint(i)}); got != (i < maxQuestions) {
			t.Errorf("question %d: got %v", i, got)
		}
	}
	if asked != maxQuestions || !a.Allows(t.Context(), Question{KindHost, "0"}) {
		t.Errorf("%d were asked", asked)
	}
}
