package sandboxcmd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker"
)

// untried is the backend that choose would try first. To try it takes as long
// as the jail itself.
func (r *jailRun) untried() sandbox.Backend {
	name := cmp.Or(strings.ToLower(r.asked.Backend), backends.Auto)
	if name == backends.Auto {
		name = r.shell.Config.Worker.Backend
	}
	switch {
	case r.explain: // it describes the jail of this host
		return nil
	case name != backends.Auto:
		return backends.Untried(name)
	case len(r.policy.Backends) > 0:
		return backends.Untried(r.policy.Backends...)
	}
	return backends.Untried(backends.Names()...)
}

// choose finds the backend among those that the policy permits.
func (r *jailRun) choose(ctx context.Context) (sandbox.Backend, error) {
	b, err := jail.Choose(ctx, r.shell.Config.Worker.Backend, r.policy.Backends)(r.asked.Backend)
	if err != nil {
		return nil, jailError(err)
	}
	if b.Name() == "none" {
		if r.asked.Network == jobs.NetworkAllowlist {
			return nil, cli.Usage("use --network full or another backend", "backend none cannot enforce a list of hosts")
		}
		r.spec = r.spec.Allow(none.Unenforced()...)
	}
	return b, nil
}

// permitted asks the policy, and about what it does not list the person at
// the terminal. What is denied is said in one go.
func (r *jailRun) permitted(ctx context.Context) error {
	request := policy.Request{
		Backend: r.jail.Name(), Network: string(r.asked.Network), Hosts: r.asked.AllowHosts, Limits: r.spec.Limits,
		Budget: worker.Budget(r.asked.Limits),
	}
	file := &policy.DeniedError{File: r.policy.File()}
	if e, ok := errors.AsType[*policy.DeniedError](r.policy.Permits(request)); ok {
		for _, d := range e.Denials {
			if d.Field == "hosts" && r.asker.Allows(ctx, policy.Question{Kind: policy.KindHost, What: d.Value}) {
				continue
			}
			kind, what := policy.KindPolicy, d.Field+": "+d.Value
			if d.Field == "hosts" {
				kind, what = policy.KindHost, d.Value
			}
			r.seen.Note(kind, what, "not permitted by policy "+e.File)
			file.Denials = append(file.Denials, d)
		}
	}
	mounts, err := r.mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		listed, err := r.listed(ctx, m)
		if err != nil {
			return err
		}
		if !listed {
			file.Denials = append(file.Denials, r.hidden(m))
		}
	}
	if len(file.Denials) > 0 {
		return denied(file)
	}
	r.spec.Mounts = mounts
	return nil
}

// denied says that a policy does not permit the request.
func denied(err error) error {
	return cli.Fail(cli.ExitDenied, "request less, or have the policy changed", "%w", err)
}

// mounts are what --read and --write name.
func (r *jailRun) mounts() ([]sandbox.Mount, error) {
	var flags policy.Policy
	for _, p := range r.read {
		flags.Read = append(flags.Read, policy.Pattern(p))
	}
	for _, p := range r.write {
		flags.Write = append(flags.Write, policy.Pattern(p))
	}
	spec, err := flags.Apply(sandbox.Spec{Args: r.spec.Args}, jail.Here())
	if err != nil {
		return nil, cli.Usage("", "--read and --write: %w", err)
	}
	return spec.Mounts, nil
}

// listed reports whether the policy shows m, or the user at the terminal permits it.
// Without a policy the flags decide alone.
func (r *jailRun) listed(ctx context.Context, m sandbox.Mount) (bool, error) {
	if r.policy.File() == "" {
		return true, nil
	}
	listed, err := r.policy.Lists(m, jail.Here())
	if err != nil {
		return false, cli.Usage("", "%w", err)
	}
	kind := policy.KindRead
	if m.Writable {
		kind = policy.KindWrite
	}
	return listed || r.asker.Allows(ctx, policy.Question{Kind: kind, What: m.Source}), nil
}

func (r *jailRun) hidden(m sandbox.Mount) policy.Denial {
	kind, patterns := policy.KindRead, slices.Concat(r.policy.Read, r.policy.Write)
	if m.Writable {
		kind, patterns = policy.KindWrite, r.policy.Write
	}
	r.seen.Note(kind, m.Source, "not listed in policy "+r.policy.File())
	most := "nothing"
	for i, p := range patterns {
		if i == 0 {
			most = string(p)
		} else {
			most += ", " + string(p)
		}
	}
	return policy.Denial{Field: kind, Value: m.Source, Most: most}
}
