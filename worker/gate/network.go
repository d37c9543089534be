package gate

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

// What one attempt may add to its session's log.
const (
	maxRefusals = 100 // reported one by one; the rest are counted
	maxHosts    = 200
)

// NetworkConfig says which hosts a job with an allow-list may reach.
type NetworkConfig struct {
	Hosts    []string // in the syntax of package proxy
	MaxBytes int64    // of an attempt, in both directions; 0 is no limit
	// MaxConnections of an attempt, at once; 0 is 256.
	MaxConnections int

	// Ask decides on hosts that are not listed; see [proxy.Config]. Nil refuses them.
	Ask func(ctx context.Context, host string, port uint16) bool
	// Refused is called once for each host, port and reason. It must not block.
	Refused func(v event.JailViolation)

	// Token is for a jail without a loopback of its own: its programs send it to the
	// proxy. [Network.Env] contains it.
	Token string

	// Resolve and Dial replace the system's.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// A Network connects one attempt's programs to the hosts on a list. All jails of the
// attempt share its budgets. Its methods may be called from any goroutine.
type Network struct {
	proxy   *proxy.Proxy
	token   string
	refused func(event.JailViolation)

	mu       sync.Mutex
	reported map[event.JailViolation]bool // guarded by mu
	used     event.JailNetwork            // without the hosts; guarded by mu
	per      map[netKey]*event.Host       // guarded by mu
}

type netKey struct {
	host string
	port int
}

// NewNetwork returns a Network that reaches cfg.Hosts. An error names the
// entry that cannot be read.
func NewNetwork(cfg NetworkConfig) (*Network, error) {
	rules, err := proxy.ParseRules(cfg.Hosts...)
	if err != nil {
		return nil, err
	}
	n := &Network{token: cfg.Token, refused: cfg.Refused, reported: map[event.JailViolation]bool{}, per: map[netKey]*event.Host{}}
	n.proxy = proxy.New(proxy.Config{
		Rules: rules, Token: cfg.Token, MaxBytes: cfg.MaxBytes, MaxConnections: cfg.MaxConnections, Ask: cfg.Ask, Resolve: cfg.Resolve, Dial: cfg.Dial,
		Hint:  "The job can name it in sandbox.allow_hosts (--allow-host), or the worker in worker.allow_hosts.",
		Hooks: proxy.Hooks{Decided: n.decided, Closed: n.closed},
	})
	return n, nil
}

// Listen returns the listeners that a jail opens for Serve, for its Spec.
func (n *Network) Listen() []string { return proxy.Listen() }

// Env returns the variables that point programs to the proxy at an address: the first
// of Listen, or another if the jail has no loopback of its own.
func (n *Network) Env(address string) []string { return proxy.Env(address, n.token) }

// Serve serves the sockets that one jail opened, until the jail ends or ctx does.
func (n *Network) Serve(ctx context.Context, listeners []net.Listener, packets []net.PacketConn) error {
	return n.proxy.ServeAll(ctx, listeners, packets)
}

// Connect connects to a host and port, as "host:443", for the worker itself, when it calls one of
// the hosts on the list for the agent.
func (n *Network) Connect(ctx context.Context, authority string) (net.Conn, error) {
	return n.proxy.Connect(ctx, authority)
}

// Used returns a summary of what was reached so far by all of them. Nil has reached nothing.
func Used(networks ...*Network) event.JailNetwork {
	sum := event.JailNetwork{Hosts: []event.Host{}}
	for _, n := range networks {
		if n == nil {
			continue
		}
		n.mu.Lock()
		sum.Refused, sum.Sent, sum.Received = sum.Refused+n.used.Refused, sum.Sent+n.used.Sent, sum.Received+n.used.Received
		for _, h := range n.per {
			sum.Hosts = append(sum.Hosts, *h)
		}
		n.mu.Unlock()
	}
	slices.SortFunc(sum.Hosts, func(a, b event.Host) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	return sum
}

// decided reports a refusal, once. It does not report an allowed host that does not
// exist or does not answer.
func (n *Network) decided(d proxy.Decision) {
	if d.Allowed || d.Reason == proxy.ReasonResolve || d.Reason == proxy.ReasonConnect {
		return
	}
	v := event.JailViolation{Kind: "network", Method: cut(d.Method), Host: d.Host, Port: int(d.Port), Reason: string(d.Reason)}
	if n.news(v) && n.refused != nil {
		n.refused(v)
	}
}

// news counts a refusal and returns whether to report it.
func (n *Network) news(v event.JailViolation) bool {
	v.Method = "" // the same host by other routes is the same refusal
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used.Refused++
	if n.reported[v] || len(n.reported) >= maxRefusals {
		return false
	}
	n.reported[v] = true
	return true
}

// cut bounds a string that a program inside chose.
func cut(method string) string { return method[:min(len(method), 16)] }

func (n *Network) closed(d proxy.Decision, sent, received int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := netKey{d.Host, int(d.Port)}
	h := n.per[key]
	if h == nil && len(n.per) >= maxHosts {
		key = netKey{}
		h = n.per[key]
	}
	if h == nil {
		h = &event.Host{Host: key.host, Port: key.port}
		n.per[key] = h
	}
	h.Connections++
	h.Sent, h.Received = h.Sent+sent, h.Received+received
	n.used.Sent, n.used.Received = n.used.Sent+sent, n.used.Received+received
}
