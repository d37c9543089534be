package sandboxcmd

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/sandbox/proxy"
	"github.com/penstock-run/penstock/worker"
)

// secrets are what a home has that no jail should: a workspace that is the
// home would show them.
var secrets = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".git-credentials", ".docker", ".npmrc", ".config/gcloud", ".config/gh"}

// workspace is the current directory, unless that is a home with secrets.
func (r *jailRun) workspace() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("current directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("current directory: %w", err)
	}
	if file := r.policy.File(); beneath(file, dir) && !r.readOnly {
		r.shell.Err.Printf("penstock: policy %s is inside the workspace: changes that the command makes to it apply to the next command\n", file)
	}
	home, err := os.UserHomeDir()
	if err != nil || !beneath(home, dir) {
		return dir, nil
	}
	var found []string
	for _, name := range secrets {
		if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
			found = append(found, name)
		}
	}
	if len(found) > 0 {
		return "", cli.Usage("change to the directory that the command shall work in", "the current directory would give the command your home, with %s", strings.Join(found, ", "))
	}
	return dir, nil
}

func beneath(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return path != "" && err == nil && filepath.IsLocal(rel)
}

// describe fills in the jail that the flags ask for.
func (r *jailRun) describe(command []string) error {
	var err error
	if r.asked, err = r.flags.Sandbox(); err != nil {
		return err
	}
	r.asked.Network = jobs.Network(network(string(r.asked.Network), r.policy))
	l := worker.Limits(r.asked.Limits)
	l.OpenFiles = r.openFiles
	for _, s := range []struct {
		flag, text string
		to         *int64
	}{{"file-size", r.fileSize, &l.FileSize}, {"tmp", r.tmp, &l.TmpSize}} {
		v, err := jail.ParseSize(s.flag, s.text)
		if err != nil {
			return err
		}
		*s.to = int64(v)
	}
	if r.home != "" {
		if r.home, err = filepath.Abs(r.home); err != nil {
			return cli.Usage("", "--home: %w", err)
		}
	}
	r.spec = sandbox.Spec{
		Args: command, Workspace: r.dir, WorkspaceReadOnly: r.readOnly, Home: r.home, Image: r.flags.Image, Label: r.label, Limits: l,
		Dial: len(r.publish) > 0,
	}
	if r.asked.Preset != "strict" {
		r.spec.Preset = sandbox.Preset(r.asked.Preset)
	}
	for _, f := range r.asked.AllowWeaker {
		r.spec = r.spec.Allow(sandbox.Feature(f))
	}
	return r.check()
}

// network is the one that was asked for, or else the policy's. A policy that
// only names hosts means these.
func network(asked string, p policy.Policy) string {
	if asked == "" && p.Network == "" && len(p.Hosts) > 0 {
		return "allowlist"
	}
	return cmp.Or(asked, p.Network, "none")
}

// check finds what is wrong with the flags before anything is tried.
func (r *jailRun) check() error {
	if err := r.spec.Validate(); err != nil {
		return cli.Usage("", "%w", err)
	}
	if !slices.Contains([]jobs.Network{jobs.NetworkNone, jobs.NetworkAllowlist, jobs.NetworkFull}, r.asked.Network) {
		return cli.Usage("", "--network: %q is not one of none, allowlist, full", r.asked.Network)
	}
	for _, f := range []struct {
		flag string
		set  bool
	}{{"allow-host", len(r.asked.AllowHosts) > 0}, {"traffic", r.asked.Limits.Traffic != 0}, {"connections", r.asked.Limits.Connections != 0}} {
		if f.set && r.asked.Network != jobs.NetworkAllowlist {
			return cli.Usage("add --network allowlist", "--%s has no meaning with network %q", f.flag, r.asked.Network)
		}
	}
	return nil
}

// budget is what the way out may carry.
func (r *jailRun) budget() policy.Budget {
	return r.policy.Limits.FillBudget(worker.Budget(r.asked.Limits))
}

// complete adds what the policy adds, and the way out.
func (r *jailRun) complete() error {
	flags := r.spec.Mounts
	r.spec.Mounts = nil
	spec, err := r.policy.Apply(r.spec, jail.Here())
	if err != nil {
		return cli.Usage("", "%w", err)
	}
	spec.Mounts = append(spec.Mounts, flags...)
	r.spec = spec
	if err := r.openNetwork(); err != nil {
		return err
	}
	return r.setEnvironment()
}

// openNetwork opens the network as the flags and the policy permit, and passes the
// proxy's address to programs.
func (r *jailRun) openNetwork() error {
	switch r.asked.Network {
	case jobs.NetworkFull:
		r.spec.Network = sandbox.NetworkFull
	case jobs.NetworkAllowlist:
		r.allowed = slices.Concat(r.policy.Hosts, r.asked.AllowHosts)
		var err error
		if r.rules, err = proxy.ParseRules(r.allowed...); err != nil {
			return cli.Usage("", "--allow-host: %w", err)
		}
		r.spec.Network, r.spec.Listen = sandbox.NetworkGate, proxy.Listen()
		if r.jail.Name() == "none" {
			r.spec.Listen = r.spec.Listen[:1] // the others are ports of the host
		}
		if name := r.jail.Name(); !r.explain && (name == "none" || name == "seatbelt") {
			r.token = strings.ToLower(rand.Text()) // it listens where every program of the host connects
		}
		r.spec.Env = append(slices.Clone(r.spec.WithDefaults().Env), proxy.Env(proxy.Address, r.token)...)
	}
	return nil
}

// setEnvironment adds what --env says, which beats policy and defaults.
func (r *jailRun) setEnvironment() error {
	set, err := r.flags.ParseEnv()
	if err != nil {
		return err
	}
	r.spec.Env = slices.Clone(r.spec.WithDefaults().Env)
	for name, value := range set {
		r.spec.Env = slices.DeleteFunc(r.spec.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		r.spec.Env = append(r.spec.Env, name+"="+value)
	}
	slices.Sort(r.spec.Env)
	return nil
}
