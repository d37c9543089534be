// Package policy reads the policy files of pools: what jails may touch, as package
// [github.com/penstock-run/penstock/sandbox/policy] says it, and what else a job may
// request of a worker. It is one file, so that its owner has one place to look.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

// A Policy is the content of a file. The zero value adds nothing and forbids nothing.
type Policy struct {
	policy.Policy `yaml:",inline"`

	Modes []string `yaml:"modes,omitempty" json:"modes,omitempty"` // isolation modes that a job may ask for; empty is all
	// Workspaces are the ways in which jobs may get files of their own; empty is all.
	Workspaces []string `yaml:"workspaces,omitempty" json:"workspaces,omitempty"`
	// Deliver are the ways in which results may leave the store; empty is all. None and
	// patch are no such way, and stand for none.
	Deliver []string `yaml:"deliver,omitempty" json:"deliver,omitempty"`
	// Attach says whether people may open terminals in the jails of agents:
	// allow, which is the default, or deny.
	Attach string `yaml:"attach,omitempty" json:"attach,omitempty"`
	// MCPServers says whether jobs may give their agents servers of tools: allow, which is
	// the default, or deny.
	MCPServers string `yaml:"mcp_servers,omitempty" json:"mcp_servers,omitempty"`
	// MCPHosts are those where the MCP servers of jobs may be that have a URL, in the syntax of
	// hosts. Empty: those of hosts, and all where there are none, unless network is none.
	MCPHosts []string `yaml:"mcp_hosts,omitempty" json:"mcp_hosts,omitempty"`
	// Models are those that agents may call, by the names that they have on the wire; one
	// that ends with * stands for all that begin so. Empty is all.
	Models []string `yaml:"models,omitempty" json:"models,omitempty"`
	// ServiceTiers are the tiers and speeds that calls of models may ask for, as flex,
	// priority and fast; a call that asks for none is permitted. Empty is all.
	ServiceTiers []string `yaml:"service_tiers,omitempty" json:"service_tiers,omitempty"`
	// InferenceGeos are the places where calls of models may ask that the model runs, by the names
	// of inference_geo, as global and us; a call that asks for none is permitted. Empty is all.
	InferenceGeos []string `yaml:"inference_geos,omitempty" json:"inference_geos,omitempty"`
	// Betas are the beta features that calls of models may ask for, by the names that they have in
	// the headers anthropic-beta and openai-beta; one that ends with * stands for all that begin
	// so. Empty is all.
	Betas []string `yaml:"betas,omitempty" json:"betas,omitempty"`
	// FileIDs and ContainerIDs are the files and containers of the provider that calls of models
	// may use, in the same way. Empty is all.
	FileIDs      []string `yaml:"file_ids,omitempty" json:"file_ids,omitempty"`
	ContainerIDs []string `yaml:"container_ids,omitempty" json:"container_ids,omitempty"`
}

// Load reads the file at path.
func Load(path string) (p Policy, err error) {
	if err = policy.LoadInto(path, &p, &p.Policy); err != nil {
		return p, err
	}
	return p, p.validate()
}

// Parse reads YAML, or JSON, as the content of the file at an absolute path.
func Parse(file string, b []byte) (p Policy, err error) {
	if err = policy.ParseInto(file, b, &p, &p.Policy); err != nil {
		return p, err
	}
	return p, p.validate()
}

func (p Policy) validate() error {
	return cmp.Or(
		p.CheckWords("attach", []string{p.Attach}, "", "allow", "deny"),
		p.CheckWords("mcp_servers", []string{p.MCPServers}, "", "allow", "deny"),
		p.checkHosts(),
		p.checkNames("models", p.Models),
		p.checkNames("service_tiers", p.ServiceTiers),
		p.checkNames("inference_geos", p.InferenceGeos),
		p.checkNames("betas", p.Betas),
		p.checkNames("file_ids", p.FileIDs),
		p.checkNames("container_ids", p.ContainerIDs),
		p.CheckWords("modes", p.Modes, "none", "worktree", "container"),
		p.CheckWords("workspaces", p.Workspaces, "overlay", "clone", "linked", "hook"),
		p.CheckWords("deliver", p.Deliver, "none", "patch", "branch", "pr"),
	)
}

// checkNames reports an entry that could mean something else than it says.
func (p Policy) checkNames(field string, names []string) error {
	for _, name := range names {
		if err := jobs.CheckAllowed(name); err != nil {
			return fmt.Errorf("policy %s: %s: %w", p.File(), field, err)
		}
	}
	return nil
}

func (p Policy) checkHosts() error {
	if _, err := proxy.ParseRules(p.MCPHosts...); err != nil {
		return fmt.Errorf("policy %s: mcp_hosts: %w", p.File(), err)
	}
	return nil
}

// A Request is what a job asks for, in the words of jobs.
type Request struct {
	Jail      policy.Request
	Mode      string // none, worktree, container
	Workspace string // how the job gets files of its own; "" leaves it to the host
	// MCPServers are the names of the servers that the job gives its agent.
	MCPServers []string
	MCPHosts   []string // hosts, with ports, of those with a URL
	Deliver    string   // how its result leaves the store; "" if it does not
}

// PermitsJob reports all that the policy does not permit together, as a
// [*policy.DeniedError]. A field that the policy leaves out bounds nothing.
func (p Policy) PermitsJob(r Request) error {
	var denied []policy.Denial
	for _, c := range []struct {
		field, asked string
		permitted    []string
	}{{"modes", r.Mode, p.Modes}, {"workspaces", r.Workspace, p.Workspaces}, {"deliver", r.Deliver, p.Deliver}} {
		if len(c.permitted) > 0 && c.asked != "" && !slices.Contains(c.permitted, c.asked) {
			denied = append(denied, policy.Denial{Field: c.field, Value: c.asked, Most: strings.Join(c.permitted, ", ")})
		}
	}
	if p.MCPServers == "deny" && len(r.MCPServers) > 0 {
		denied = append(denied, policy.Denial{Field: "mcp_servers", Value: strings.Join(r.MCPServers, ", "), Most: "none"})
	}
	denied = append(denied, p.deniedHosts(r.MCPHosts)...)
	if jail, ok := errors.AsType[*policy.DeniedError](p.Permits(r.Jail)); ok {
		denied = append(denied, jail.Denials...)
	}
	if denied == nil {
		return nil
	}
	return &policy.DeniedError{File: p.File(), Denials: denied}
}

// deniedHosts are the hosts of MCP servers that the policy does not permit.
func (p Policy) deniedHosts(hosts []string) (denied []policy.Denial) {
	permitted := p.MCPHosts
	switch {
	case len(permitted) > 0:
	case p.Network == "none" && len(hosts) > 0:
		return []policy.Denial{{Field: "mcp_hosts", Value: strings.Join(hosts, ", "), Most: "none, as network is none"}}
	default:
		permitted = p.Hosts
	}
	for _, host := range policy.Beyond(permitted, hosts) {
		denied = append(denied, policy.Denial{Field: "mcp_hosts", Value: host, Most: strings.Join(permitted, ", ")})
	}
	return denied
}
