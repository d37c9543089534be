package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/policy"
)

const example = `
modes: [worktree, container]
network: allowlist
deliver: [patch, pr]
backends: [bwrap]
workspaces: [overlay]
attach: deny
mcp_servers: deny
`

// A job is told at once all that it may not have, of the worker and of its jail.
func TestPermitsJobReportsEverything(t *testing.T) {
	p, err := Parse("/etc/penstock/policy.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	good := Request{
		Mode: "worktree", Workspace: "overlay", Deliver: "pr", Jail: policy.Request{Backend: "auto", Network: "allowlist"},
	}
	for _, r := range []Request{good, {Jail: good.Jail}} {
		if err := p.PermitsJob(r); err != nil {
			t.Errorf("got %v for what is permitted", err)
		}
	}
	err = p.PermitsJob(Request{
		Mode: "none", Workspace: "linked", Deliver: "branch", MCPServers: []string{"a", "b"}, Jail: policy.Request{Backend: "none", Network: "full"},
	})
	const want = "policy /etc/penstock/policy.yaml: modes: none is not permitted; permitted is worktree, container; " +
		"workspaces: linked is not permitted; permitted is overlay; deliver: branch is not permitted; permitted is patch, pr; mcp_servers: a, b is not permitted; permitted is none; " +
		"backends: none is not permitted; permitted is bwrap; network: full is not permitted; permitted is allowlist"
	if denied, ok := errors.AsType[*policy.DeniedError](err); !ok || err.Error() != want || len(denied.Denials) != 6 {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	err = (Policy{}).PermitsJob(Request{Mode: "none", Workspace: "hook", Deliver: "pr", Jail: policy.Request{Backend: "none", Network: "full"}})
	if err != nil {
		t.Errorf("the zero value denies: %v", err)
	}
}

// A mistake is named with the file, in the fields of jails and of jobs alike.
func TestMistakesAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{
		"raed: [//a]":                      "line 1: field raed not found in type policy.Policy",
		"read: [relative]":                 `read[0]: "relative" is none of`,
		"preset: lax":                      `preset: "lax" is not one of strict, browser, debug, offline`,
		"models: [claude-*-4]":             `models: "claude-*-4" is no name as on the wire`,
		"inference_geos: [a b]":            `inference_geos: "a b" is no name`,
		"service_tiers: ['']":              `service_tiers: "" is no name`,
		"betas: ['']":                      `betas: "" is no name`,
		"file_ids: ['*']":                  `file_ids: "*" is no name`,
		"container_ids: [a b]":             `container_ids: "a b" is no name`,
		"modes: [worktre]":                 `modes: "worktre" is not one of none, worktree, container`,
		"workspaces: [overlay, copy]":      `workspaces: "copy" is not one of overlay, clone, linked, hook`,
		"deliver: [push]":                  `deliver: "push" is not one of none, patch, branch, pr`,
		"mcp_servers: ask":                 `mcp_servers: "ask" is not one of allow, deny`,
		"mcp_hosts: [http://a.example]":    `mcp_hosts: allowed host "http://a.example"`,
		"attach: maybe":                    `attach: "maybe" is not one of allow, deny`,
		"modes: [none]\nmodes: [none]":     `mapping key "modes" already defined`,
		"modes: [none]\n---\nattach: deny": "has more than one document",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if err == nil || !strings.HasPrefix(err.Error(), "policy "+path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a file that does not exist", err)
	}
}

// Hosts of MCP servers are those of mcp_hosts, or else those that jails may reach.
func TestHostsOfServers(t *testing.T) {
	for text, want := range map[string]string{ // the hosts that are refused
		"mcp_hosts: [tickets.example]":                          "10.0.0.1:8080 other.example:443",
		"mcp_hosts: ['*.example', '10.0.0.0/8:*']":              "",
		"mcp_hosts: [other.example]\nhosts: [tickets.example]":  "10.0.0.1:8080 tickets.example:443",
		"hosts: [other.example]":                                "10.0.0.1:8080 tickets.example:443",
		"network: none":                                         "10.0.0.1:8080, other.example:443, tickets.example:443",
		"network: none\nmcp_hosts: [tickets.example:443]":       "10.0.0.1:8080 other.example:443",
		"network: allowlist":                                    "",
		"mcp_hosts: [tickets.example:8443, other.example.evil]": "10.0.0.1:8080 other.example:443 tickets.example:443",
		"modes: [none]":                                         "",
	} {
		p, err := Parse("/p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = p.PermitsJob(Request{MCPHosts: []string{"10.0.0.1:8080", "other.example:443", "tickets.example:443"}, Mode: "none", Jail: policy.Request{Backend: "auto", Network: "none"}})
		var refused []string
		if denied, ok := errors.AsType[*policy.DeniedError](err); ok {
			for _, d := range denied.Denials {
				refused = append(refused, d.Value)
			}
		}
		if got := strings.Join(refused, " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
