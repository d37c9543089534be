package servecmd

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs/token"
)

// anyOf identifies a request by the token of the data directory, or by one that was added.
func anyOf(owner func(*http.Request) (httpapi.Identity, error), added *token.Verifier) func(*http.Request) (httpapi.Identity, error) {
	return func(r *http.Request) (httpapi.Identity, error) {
		if who, err := owner(r); err == nil {
			return who, nil
		}
		scheme, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return httpapi.Identity{}, httpapi.ErrUnauthenticated
		}
		who, err := added.Verify(presented)
		if errors.Is(err, token.ErrRefused) {
			err = httpapi.ErrUnauthenticated
		}
		return httpapi.Identity(who), err
	}
}

// A refusalLog tells the log which tokens were refused, and why: up to so many a minute,
// so that one who tries many does not fill a disk, and how many more there were.
type refusalLog struct {
	log *slog.Logger

	mu      sync.Mutex
	minute  time.Time
	refused int
}

const refusalsAMinute = 10

// hooks are those of a verifier.
func (l *refusalLog) hooks() token.Hooks {
	return token.Hooks{Refused: l.tell, Failed: func(err error) { l.log.Warn("tokens cannot be followed", "err", err) }}
}

func (l *refusalLog) tell(name string, why token.Reason) {
	n, before := l.count(time.Now())
	if before > refusalsAMinute {
		l.log.Warn("more tokens were refused than are named", "refused", before)
	}
	if n <= refusalsAMinute {
		l.log.Warn("a token was refused", "token", name, "why", why)
	}
}

// count returns which refusal of its minute this is and, of the first one, how many
// there were in the minute before.
func (l *refusalLog) count(now time.Time) (n, before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		before, l.minute, l.refused = l.refused, now, 0
	}
	l.refused++
	return l.refused, before
}
