package governor

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// An api is a bucket of tokens that fills up evenly, as those of providers do. More than
// atOnce calls overload it.
type api struct {
	rate, size, tokens float64
	at                 time.Time
	atOnce, running    int
	headers, after     bool // it tells what is left, and how long to wait

	asked, served int
}

func (a *api) fill(now time.Time) {
	a.tokens = min(a.size, a.tokens+a.rate*now.Sub(a.at).Seconds())
	a.at = now
}

// ask answers a call that begins now.
func (a *api) ask(now time.Time) Answer {
	a.fill(now)
	a.asked++
	answer := Answer{Kind: Served}
	switch {
	case a.atOnce > 0 && a.running >= a.atOnce:
		answer.Kind = Overloaded
	case a.tokens < 1:
		answer.Kind = Limited
		if a.after {
			answer.Wait = time.Duration(float64(time.Second)*(1-a.tokens)/a.rate).Truncate(time.Second) + time.Second
		}
	default:
		a.tokens--
		a.served++
	}
	return answer
}

// left is what the headers of an answer say.
func (a *api) left() Room {
	return Room{What: requests, Limit: a.size, Left: float64(int(a.tokens)), Full: time.Duration((a.size - a.tokens) / a.rate * float64(time.Second))}
}

// A flight is a call under way.
type flight struct {
	began, ends time.Time
	answer      Answer
}

// drive lets sessions call without a pause, and returns the part of the allowed calls that
// was used and the part of the calls that was refused, after the first minutes.
func drive(t *testing.T, a *api, l *Line, sessions int, took, warm, long time.Duration) (used, refused float64) {
	now, random := epoch, rand.New(rand.NewPCG(1, 2))
	a.at, a.tokens = now, a.size
	var under []flight
	end := now.Add(warm + long)
	warmed := false
	for now.Before(end) {
		if !warmed && now.Sub(epoch) >= warm {
			warmed, a.asked, a.served = true, 0, 0
		}
		for len(under) < sessions && !l.Full() && l.Wait(now) == 0 {
			if now.Before(l.Until()) {
				t.Fatalf("a call begins at %v, and is held until %v", now, l.Until())
			}
			l.Begin(now, true)
			answer := a.ask(now)
			if a.headers {
				l.Learn(now, a.left())
			}
			f := flight{began: now, ends: now.Add(20 * time.Millisecond), answer: answer}
			if answer.Kind == Served {
				a.running++
				f.ends = now.Add(time.Duration(float64(took) * (0.5 + random.Float64())))
			}
			under = append(under, f)
		}
		next := end
		for _, f := range under {
			next = earlier(next, f.ends)
		}
		if len(under) < sessions && !l.Full() {
			next = earlier(next, now.Add(max(l.Wait(now), time.Millisecond)))
		}
		if len(under) == 0 && l.Full() {
			t.Fatal("no call is under way, and none may begin")
		}
		now = next
		for i := 0; i < len(under); i++ {
			if f := under[i]; !f.ends.After(now) {
				if f.answer.Kind == Served {
					a.running--
				}
				l.End(now, f.began, f.answer)
				under[i] = under[len(under)-1]
				under = under[:len(under)-1]
				i--
			}
		}
	}
	return float64(a.served) / (a.rate * long.Seconds()), float64(a.asked-a.served) / float64(a.asked)
}

// With and without headers, from many times what is allowed, nearly all of it is used and few calls are
// refused.
func TestAllThatIsAllowedIsUsed(t *testing.T) {
	for _, c := range []struct {
		name     string
		api      api
		sessions int
		took     time.Duration
	}{
		{"few a minute", api{rate: 50.0 / 60, size: 50, after: true}, 100, 5 * time.Second},
		{"few a minute, not told when", api{rate: 50.0 / 60, size: 50}, 100, 5 * time.Second},
		{"many", api{rate: 50, size: 50, after: true}, 500, 3 * time.Second},
		{"many, not told when", api{rate: 50, size: 50}, 500, 3 * time.Second},
		{"short calls", api{rate: 20, size: 20, after: true}, 100, 50 * time.Millisecond},
		{"a small bucket", api{rate: 20, size: 5, after: true}, 100, time.Second},
		{"headers", api{rate: 20, size: 100, headers: true, after: true}, 100, time.Second},
		{"headers, few a minute", api{rate: 1, size: 60, headers: true, after: true}, 100, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			used, refused := drive(t, &c.api, NewLine(), c.sessions, c.took, 5*time.Minute, 20*time.Minute)
			if used < 0.9 || refused > 0.05 {
				t.Errorf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
			}
			t.Logf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
		})
	}
}

// An API that takes only so many calls at once gets nearly as many.
func TestOverload(t *testing.T) {
	a := &api{rate: 1e6, size: 1e6, atOnce: 40}
	_, refused := drive(t, a, NewLine(), 200, 5*time.Second, 5*time.Minute, 20*time.Minute)
	used := float64(a.served) / (40 * 20 * 60 / 5)
	t.Logf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
	if used < 0.6 || refused > 0.1 {
		t.Errorf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
	}
}
