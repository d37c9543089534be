package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A limit is what the API allows: so many calls a second, by a bucket of tokens that fills up evenly, as those of
// providers do. From quotaFrom after the first call on, for as long as quota, it allows none.
type limit struct {
	rate, burst      float64
	quotaFrom, quota time.Duration
}

// spared is how much of the time between two moments after the first call lies in the quota.
func (l limit) spared(from, to time.Duration) time.Duration {
	return max(min(to, l.quotaFrom+l.quota)-max(from, l.quotaFrom), 0)
}

// allowed is how many calls the limit has room for between two moments after the first call.
func (l limit) allowed(from, to time.Duration) float64 {
	return l.rate * (to - from - l.spared(from, to)).Seconds()
}

// An api is a model API with a limit. It counts.
type api struct {
	limit
	calls int           // that each agent makes
	took  time.Duration // how long an answer takes

	mu     sync.Mutex
	tokens float64        // guarded by mu
	filled time.Time      // guarded by mu
	first  time.Time      // when the first call came; guarded by mu
	counts counts         // guarded by mu
	models map[string]int // calls by model; guarded by mu
	served map[string]int // calls that were accepted, by the number of the agent; guarded by mu
}

// counts are the calls that came, and those that were accepted. Late are those that came in the quota, more
// than a while after it began.
type counts struct{ asked, served, late int }

// grace is how long after the quota began calls may still come: those that were on their way.
const grace = 5 * time.Second

func newAPI(l limit, calls int, took time.Duration) *api {
	return &api{limit: l, calls: calls, took: took, tokens: l.burst, models: map[string]int{}, served: map[string]int{}}
}

// named is how the first prompt of an agent begins; its number follows.
const named = "Throttled agent "

// model returns what answers. Agents are done once as many of their calls were accepted as they have to make, before and
// after they were parked. Until then it calls a tool of those that have tools.
func (a *api) model() *agenttest.Model {
	return agenttest.New(agenttest.Script{On: named, Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
		_, agent, _ := strings.Cut(r.First, named)
		refusal, made := a.ask(time.Now(), r.Model, agent[:min(len(agent), digits)])
		if refusal != nil {
			return *refusal
		}
		reply := agenttest.Reply{Text: "done", Delay: a.took}
		if made < a.calls {
			reply.Text = "going on"
			if len(r.Tools) > 0 {
				reply.Calls = []agenttest.Call{{Name: "Bash", Input: map[string]any{"command": "true", "description": "work"}}}
			}
		}
		return reply
	}}})
}

// ask counts a call. It returns the answer to one that is not allowed, or how many calls of the agent were accepted so far.
func (a *api) ask(now time.Time, model, agent string) (refused *agenttest.Reply, made int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first.IsZero() {
		a.first, a.filled = now, now
	}
	a.models[model]++
	a.counts.asked++
	at := now.Sub(a.first)
	if in := at - a.quotaFrom; in >= 0 && in < a.quota {
		if in > grace {
			a.counts.late++
		}
		a.tokens, a.filled = 0, now
		return refusal(a.quota - in), 0
	}
	a.tokens = min(a.burst, a.tokens+a.allowed(a.filled.Sub(a.first), at))
	a.filled = now
	if a.tokens < 1 {
		r := refusal(time.Duration((1 - a.tokens) / a.rate * float64(time.Second)))
		r.Header = http.Header{
			"Anthropic-Ratelimit-Requests-Limit":     {fmt.Sprint(a.burst)},
			"Anthropic-Ratelimit-Requests-Remaining": {"0"},
			"Anthropic-Ratelimit-Requests-Reset":     {now.Add(time.Duration((a.burst - a.tokens) / a.rate * float64(time.Second))).UTC().Format(time.RFC3339)},
		}
		return r, 0
	}
	a.tokens--
	a.counts.served++
	a.served[agent]++
	return nil, a.served[agent]
}

// refusal names the time to wait in whole seconds, as providers do.
func refusal(wait time.Duration) *agenttest.Reply {
	return &agenttest.Reply{Status: http.StatusTooManyRequests, Error: "rate_limit_error", After: strconv.Itoa(int(math.Ceil(wait.Seconds())))}
}

// counted returns what came so far, and how long ago the first call came.
func (a *api) counted(now time.Time) (counts, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first.IsZero() {
		return a.counts, 0
	}
	return a.counts, now.Sub(a.first)
}

// closed reports whether no call was allowed at a time, and agents had heard of it.
func (a *api) closed(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := at.Sub(a.first) - a.quotaFrom
	return in > grace && in < a.quota
}

// asked names the models that were called, with the number of calls.
func (a *api) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for model, n := range a.models {
		all = append(all, fmt.Sprintf("%d of %s", n, model))
	}
	return strings.Join(all, ", ")
}
