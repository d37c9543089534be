package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	maxQuestions = 256
	resolveLimit = 10 * time.Second
)

// open decides on d and connects: to the first of the checked addresses that
// answers. Where it returns no connection, d has the reason.
func (p *Proxy) open(ctx context.Context, d *Decision) net.Conn {
	addresses := p.decide(ctx, d)
	if d.Reason != "" {
		return nil
	}
	for _, a := range addresses {
		if c, err := p.cfg.Dial(ctx, a); err == nil {
			d.Address = a
			return c
		}
	}
	d.Reason = ReasonConnect
	return nil
}

// decide finds the addresses through which a host may be reached, or the
// reason why it may not.
func (p *Proxy) decide(ctx context.Context, d *Decision) []netip.AddrPort {
	switch {
	case p.exhausted():
		d.Reason = ReasonBudget
		return nil
	case !p.permissions.permit(ctx, d.Host, d.Port):
		d.Reason = ReasonNotListed
		return nil
	}
	addresses := []netip.Addr{}
	if a, err := netip.ParseAddr(d.Host); err == nil {
		addresses = append(addresses, a)
	} else if !p.permissions.look(d.Host) {
		d.Reason = ReasonBudget
		return nil
	} else {
		ctx, cancel := context.WithTimeout(ctx, resolveLimit)
		defer cancel()
		if addresses, err = p.cfg.Resolve(ctx, d.Host); err != nil || len(addresses) == 0 {
			d.Reason = ReasonResolve
			return nil
		}
	}
	var reachable []netip.AddrPort
	for _, a := range addresses {
		// All of them: a name that leads to a forbidden address among others
		// is after that one.
		if !p.cfg.Rules.reachable(a, d.Port) {
			d.Reason = ReasonAddress
			return nil
		}
		reachable = append(reachable, netip.AddrPortFrom(a.Unmap(), d.Port))
	}
	return reachable
}

// permissions say where the jail may connect to: by the rules, and by what the user
// has answered.
type permissions struct {
	rules    Rules
	user     func(ctx context.Context, host string, port uint16) bool // Config.Ask
	timeout  time.Duration                                            // of a question
	maxNames int

	mu      sync.Mutex
	answers map[string]*answer // guarded by mu
	looked  map[string]bool    // names that were resolved; guarded by mu
}

// look reports whether a name may be resolved: the first names may, and those
// again and again. A resolution reveals the name to the servers of its zone, and
// below a wildcard a program chooses what it says.
func (p *permissions) look(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.looked[host] && len(p.looked) >= p.maxNames {
		return false
	}
	p.looked[host] = true
	return true
}

// An answer is one of Ask, perhaps still to come.
type answer struct {
	given chan struct{} // closed when yes is there
	yes   bool
}

// permit reports whether a rule, or the answer to a question, permits host and port.
func (p *permissions) permit(ctx context.Context, host string, port uint16) bool {
	if p.rules.Allows(host, port) {
		return true
	}
	if p.user == nil {
		return false
	}
	a, first, ok := p.question(join(host, port))
	if !ok {
		return false
	}
	if first {
		p.ask(ctx, a, host, port)
	}
	select {
	case <-a.given:
		return a.yes
	case <-ctx.Done():
		return false
	}
}

func (p *permissions) question(key string) (a *answer, first, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok = p.answers[key]; ok {
		return a, false, true
	}
	if len(p.answers) >= maxQuestions {
		return nil, false, false // people stop reading long before
	}
	a = &answer{given: make(chan struct{})}
	p.answers[key] = a
	return a, true, true
}

// ask waits for the answer on behalf of all connections. ctx ends with the jail:
// then there is none, and the next jail may ask again.
func (p *permissions) ask(ctx context.Context, a *answer, host string, port uint16) {
	defer close(a.given)
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	yes := make(chan bool, 1)
	go func() { yes <- p.user(limited, host, port) }() // ends when Ask does, whose context ends
	select {
	case a.yes = <-yes:
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.answers, join(host, port))
	}
}
