package servecmd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
)

// everyone stands for all names that have no role of their own.
const everyone = "*"

// A nameList has the roles of those who prove their name by a certificate or by a proxy.
type nameList map[string]jobs.Role

// readNames reads NAME=ROLE.
func readNames(pairs []string) (nameList, error) {
	names := nameList{}
	for _, pair := range pairs {
		at := strings.LastIndexByte(pair, '=')
		if at < 0 {
			return nil, fmt.Errorf("%q is not NAME=ROLE", pair)
		}
		name, role := pair[:at], jobs.Role(pair[at+1:])
		if !slices.Contains([]jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter, jobs.RoleOperator, jobs.RoleAutoscale}, role) {
			return nil, fmt.Errorf("%q: %q is not a role: use viewer, submitter, operator or autoscale", pair, role)
		}
		if name != everyone && !plainName().MatchString(name) {
			return nil, fmt.Errorf("%q: the name is to be of letters, digits and - _ . @ + : alone, at most 100 of them", pair)
		}
		if _, twice := names[name]; twice {
			return nil, fmt.Errorf("%q: the name has a role already", pair)
		}
		names[name] = role
	}
	return names, nil
}

// plainName is what may be a name: it stands in logs.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._@+:-]{1,100}$`) })

// identity is who has proved a name in a way. The same name proved in another way is someone
// else.
func (n nameList) identity(way, name string) (httpapi.Identity, error) {
	role, known := n[name]
	if !known {
		role, known = n[everyone]
	}
	if !known || !plainName().MatchString(name) {
		return httpapi.Identity{}, httpapi.ErrUnauthenticated
	}
	return httpapi.Identity{Name: way + "-" + word(name), Role: role}, nil
}

// word writes a name as the pool's records and the audit log have names. One that does not
// fit has a part of its hash in it, so that no two become the same.
func word(name string) string {
	if jobs.CheckToken("name", name) == nil && len(name) < 50 {
		return name
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	sum := sha256.Sum256([]byte(name))
	return strings.Trim(plain[:min(len(plain), 40)], "-") + "-" + hex.EncodeToString(sum[:4])
}

// A proxy proves names by a header.
type proxy struct {
	header string
	from   []netip.Prefix
}

// readProxy reads the settings of a proxy; without any there is none.
func readProxy(c cli.ServeConfig) (proxy, error) {
	if (c.HTTPProxyHeader == "") != (len(c.HTTPProxyFrom) == 0) {
		return proxy{}, cli.Usage("use both, as in --http-proxy-header X-Forwarded-User --http-proxy-from 10.0.0.7/32", "--http-proxy-header, --http-proxy-from: one is missing")
	}
	p := proxy{header: http.CanonicalHeaderKey(c.HTTPProxyHeader)}
	if slices.Contains([]string{"Authorization", "Cookie", "Host", "Content-Type", "Origin"}, p.header) {
		return proxy{}, cli.Usage("name the header that the proxy sets, X-Forwarded-User", "--http-proxy-header %s has another meaning", p.header)
	}
	for _, text := range c.HTTPProxyFrom {
		network, err := netip.ParsePrefix(text)
		if address, failed := netip.ParseAddr(text); err != nil && failed == nil {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return proxy{}, cli.Usage("write an address or a network, as in 10.0.0.7/32", "--http-proxy-from: %w", err)
		}
		p.from = append(p.from, network.Masked())
	}
	return p, nil
}

// name returns the name that a proxy gives a request. What comes from another address
// counts for nothing, nor does a header that is there twice: one may be the client's own.
func (p proxy) name(r *http.Request) (string, bool) {
	given := r.Header.Values(p.header)
	if p.header == "" || len(given) != 1 {
		return "", false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", false
	}
	from := peer.Addr().Unmap().WithZone("")
	return given[0], slices.ContainsFunc(p.from, func(network netip.Prefix) bool { return network.Contains(from) })
}

// identify returns what identifies a request: by its token, or else as the settings say.
func identify(c cli.ServeConfig, byToken func(*http.Request) (httpapi.Identity, error)) (func(*http.Request) (httpapi.Identity, error), error) {
	known, err := readNames(c.HTTPClients)
	if err != nil {
		return nil, cli.Usage("write NAME=ROLE, as in ci=submitter, or *=viewer for everyone else", "--http-client %w", err)
	}
	p, err := readProxy(c)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 && (p.header != "" || c.HTTPTLSClientCA != "") {
		return nil, cli.Usage("say which role each name has, as in --http-client ci=submitter", "--http-client: without it neither a certificate nor a proxy identifies anyone")
	}
	return named(byToken, known, p), nil
}

// named identifies a request without a token by its certificate, or by its proxy. One with
// a token is whose the token is.
func named(byToken func(*http.Request) (httpapi.Identity, error), known nameList, p proxy) func(*http.Request) (httpapi.Identity, error) {
	return func(r *http.Request) (httpapi.Identity, error) {
		if r.Header.Get("Authorization") != "" {
			return byToken(r)
		}
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			return known.identity("cert", r.TLS.VerifiedChains[0][0].Subject.CommonName)
		}
		if name, ok := p.name(r); ok {
			return known.identity("proxy", name)
		}
		return httpapi.Identity{}, httpapi.ErrUnauthenticated
	}
}
