package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

// A Request is what a jail is asked for, in the words of policies.
type Request struct {
	Backend string
	Network string
	Hosts   []string
	Limits  sandbox.Limits
	Budget  Budget
}

// A Denial is one thing that was asked for and is not permitted.
type Denial struct {
	Field string // of the policy
	Value string // what was asked for
	Most  string // what would be permitted
}

func (d Denial) String() string {
	return fmt.Sprintf("%s: %s is not permitted; permitted is %s", d.Field, d.Value, d.Most)
}

// A DeniedError reports everything that a job asked for and the policy does
// not permit.
type DeniedError struct {
	File    string // the policy's
	Denials []Denial
}

func (e *DeniedError) Error() string {
	words := make([]string, len(e.Denials))
	for i, d := range e.Denials {
		words[i] = d.String()
	}
	return fmt.Sprintf("policy %s: %s", e.File, strings.Join(words, "; "))
}

// Permits reports all that the policy does not permit together, as a
// [*DeniedError]. A field that the policy leaves out bounds nothing.
func (p Policy) Permits(r Request) error {
	var denied []Denial
	deny := func(field, value, most string) { denied = append(denied, Denial{field, value, most}) }
	if len(p.Backends) > 0 && r.Backend != "auto" && !slices.Contains(p.Backends, r.Backend) {
		deny("backends", r.Backend, strings.Join(p.Backends, ", "))
	}
	if p.Network != "" && slices.Index(networks, r.Network) > slices.Index(networks, p.Network) {
		deny("network", r.Network, p.Network)
	}
	for _, host := range Beyond(p.Hosts, r.Hosts) {
		deny("hosts", host, strings.Join(p.Hosts, ", "))
	}
	for _, l := range p.Limits.wayOut(&r.Budget) {
		if l.most() > 0 && r.Network == "full" {
			deny("network", r.Network, "allowlist, where limits."+l.field+" holds")
		}
	}
	for _, l := range append(p.Limits.pairs(&r.Limits), p.Limits.wayOut(&r.Budget)...) {
		if most := l.most(); most > 0 && l.asked() > most {
			deny("limits."+l.field, l.text(l.asked()), l.text(most))
		}
	}
	if denied == nil {
		return nil
	}
	return &DeniedError{File: p.file, Denials: denied}
}

// Beyond lists the hosts that those of a policy do not cover, where it has any.
func Beyond(permitted, hosts []string) []string {
	if len(permitted) == 0 {
		return nil
	}
	rules, err := proxy.ParseRules(permitted...)
	if err != nil {
		rules = proxy.Rules{} // of a policy that was never parsed
	}
	return slices.DeleteFunc(slices.Clone(hosts), rules.Covers)
}

// Lists reports whether the policy shows what m shows: the same file or a
// directory around it, and writable where m is.
func (p Policy) Lists(m sandbox.Mount, where Where) (bool, error) {
	own := p
	if m.Writable {
		own.Read = nil
	}
	spec, err := own.mounts(where)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(spec, func(listed sandbox.Mount) bool { return inside(m.Source, listed.Source) }), nil
}
