package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/dispatcher/internal/throttle"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// authenticating is what the audit log calls a request without an identity.
const authenticating = "authenticate"

// A guard bounds what clients cost: their requests, and what is kept of those that are
// refused.
type guard struct {
	identities, strangers *throttle.Limiter // how often they may ask
	refusals              throttle.Teller
	refused               func(context.Context, operation.AuditEntry) // may be nil
}

func newGuard(cfg Config) *guard {
	burst := int(2 * cfg.Rate)
	return &guard{identities: throttle.NewLimiter(cfg.Rate, burst), strangers: throttle.NewLimiter(cfg.Rate, burst), refused: cfg.Refused}
}

// admit counts a request, and refuses one that comes too soon: by its identity, and
// where it has none, by its address. A credential that is good is never refused for what
// others at its address have tried.
func (g *guard) admit(c *call, unknown error) error {
	limiter, client := g.identities, c.who.Name
	if unknown != nil {
		limiter, client = g.strangers, throttle.Network(c.r.RemoteAddr)
	}
	wait := limiter.Take(client, time.Now())
	if wait == 0 {
		if errors.Is(unknown, ErrUnauthenticated) {
			g.keep(c, client, operation.AuditEntry{Operation: authenticating, About: client, Who: "unknown", Outcome: string(codeUnauthenticated)})
		}
		return nil
	}
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	c.Header().Set("Retry-After", seconds)
	return refused(codeTooMany, "too many requests: this one may be sent again in %s s", seconds)
}

// keepRefused keeps a request that the role of its identity does not allow.
func (g *guard) keepRefused(c *call, route Route) {
	g.keep(c, c.who.Name, operation.AuditEntry{
		Operation: cmp.Or(route.Row.Name, route.Name()), About: cmp.Or(c.r.PathValue("id"), c.r.PathValue("name"), c.r.PathValue("batch")),
		Who: c.who.Name, Role: c.who.Role, Outcome: string(jobs.CodeForbidden),
	})
}

// keep gives a refusal to the audit log, or counts it, where there are too many of them.
func (g *guard) keep(c *call, client string, e operation.AuditEntry) {
	if g.refused == nil {
		return
	}
	one, more := g.refusals.Count(client, time.Now())
	ctx := context.WithoutCancel(c.r.Context()) // a client that hangs up is kept, too
	g.keepMore(ctx, more)
	if one {
		e.Via = "http"
		g.refused(ctx, e)
	}
}

// keepMore keeps how many refusals were not kept one by one.
func (g *guard) keepMore(ctx context.Context, more int) {
	if more > 0 && g.refused != nil {
		g.refused(ctx, operation.AuditEntry{Operation: authenticating, About: fmt.Sprintf("%d more requests", more), Who: "unknown", Via: "http", Outcome: "refused"})
	}
}
