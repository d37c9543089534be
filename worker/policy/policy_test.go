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
		"models: [claude-*-4]":             `models: "claude-*-4" is no name`,
		"service_tiers: ['']":              `service_tiers: "" is no name`,
		"betas: ['']":                      `betas: "" is no name`,
		"modes: [worktre]":                 `modes: "worktre" is not one of none, worktree, container`,
		"workspaces: [overlay, copy]":      `workspaces: "copy" is not one of overlay, clone, linked, hook`,
		"deliver: [push]":                  `deliver: "push" is not one of none, patch, branch, pr`,
		"mcp_servers: ask":                 `mcp_servers: "ask" is not one of allow, deny`,
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
