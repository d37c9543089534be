package governor

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Kind is what an answer means for the limits.
type Kind int

// The kinds of answers.
const (
	Other      Kind = iota // says nothing of them: a wrong request, an error of the API
	Served                 // the call was accepted
	Limited                // refused for the rate or the quota
	Overloaded             // refused because the API has too much to do
)

// An Answer is what the answer to a call says of the limits.
type Answer struct {
	Kind Kind
	Wait time.Duration // how long it asks to wait; 0: it does not say
}

// A Room is what is left of one limit of the provider.
type Room struct {
	What        string
	Limit, Left float64
	Full        time.Duration // until nothing of it is used
}

// Wait reads how long an answer asks to wait, to the second: the header retry-after with seconds or a
// date, its variant in milliseconds, or what the body of an error says; 0: nothing.
func Wait(h http.Header, body []byte, now time.Time) time.Duration {
	if ms := h.Get("Retry-After-Ms"); ms != "" {
		if wait, err := time.ParseDuration(ms + "ms"); err == nil {
			return bounded(wait)
		}
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if wait, err := time.ParseDuration(value + "s"); err == nil {
		return bounded(wait)
	}
	if at, err := http.ParseTime(value); err == nil {
		if here, err := http.ParseTime(h.Get("Date")); err == nil {
			now = here // by the provider's clock
		}
		return bounded(at.Sub(now))
	}
	return bounded(inBody(body, now))
}

func bounded(wait time.Duration) time.Duration { return min(max(wait, 0), 1e6*time.Second) }

// inBody reads Google's RetryInfo, and when the quota of a subscription begins anew.
func inBody(body []byte, now time.Time) time.Duration {
	var e struct {
		Error struct {
			Details []struct {
				Type  string `json:"@type"`
				Delay string `json:"retryDelay"`
			} `json:"details"`
			In float64 `json:"resets_in_seconds"`
			At float64 `json:"resets_at"`
		} `json:"error"`
	}
	if len(body) == 0 || json.Unmarshal(body, &e) != nil {
		return 0
	}
	for _, d := range e.Error.Details {
		if !strings.HasSuffix(d.Type, ".RetryInfo") {
			continue
		}
		if wait, err := time.ParseDuration(d.Delay); err == nil {
			return wait
		}
	}
	switch in, at := e.Error.In, e.Error.At; {
	case in > 0 && in < 1e6:
		return time.Duration(in * float64(time.Second))
	case at > 0 && at < 1e11:
		return time.Unix(int64(at), 0).Sub(now)
	}
	return 0
}

// requests is the room of calls; the others are of tokens.
const requests = "requests"

// Rooms reads the headers about what is left: anthropic-ratelimit-REQUESTS-limit,
// -remaining and -reset, and x-ratelimit-limit-REQUESTS, -remaining- and -reset-, the same for tokens.
func Rooms(h http.Header, now time.Time) []Room {
	if here, err := http.ParseTime(h.Get("Date")); err == nil && here.Sub(now).Abs() < mostHold {
		now = here
	}
	var all []Room
	for _, what := range []string{requests, "tokens", "input-tokens", "output-tokens"} {
		get := func(form string) string { return h.Get(strings.Replace(form, "*", what, 1)) }
		limit, left, full := get("anthropic-ratelimit-*-limit"), get("anthropic-ratelimit-*-remaining"), time.Duration(0)
		if at, err := time.Parse(time.RFC3339, get("anthropic-ratelimit-*-reset")); err == nil {
			full = at.Sub(now)
		}
		if limit == "" {
			limit, left = get("x-ratelimit-limit-*"), get("x-ratelimit-remaining-*")
			full = duration(get("x-ratelimit-reset-*"))
		}
		r := Room{What: what, Full: max(full, 0)}
		var err, other error
		r.Limit, err = strconv.ParseFloat(limit, 64)
		r.Left, other = strconv.ParseFloat(left, 64)
		if err == nil && other == nil && r.Limit < 1e15 && r.Left < 1e15 { // no NaN
			all = append(all, r)
		}
	}
	return all
}

// duration reads 6m0s, and 6 as seconds.
func duration(s string) time.Duration {
	if d, err := time.ParseDuration(s); err == nil {
		return d
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil {
		return 0
	}
	return d
}
