package sandboxcmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/policy"
)

// An explanation says what a jail would be.
type explanation struct {
	Backend   string            `json:"backend"`
	Command   []string          `json:"command"`
	Policy    string            `json:"policy,omitempty"`
	Preset    string            `json:"preset"`
	View      []shown           `json:"view"`
	Network   string            `json:"network"`
	Hosts     []string          `json:"hosts,omitempty"`
	Ask       bool              `json:"ask"`
	Publish   []string          `json:"publish,omitempty"`
	Env       []string          `json:"env"` // names; values can be secrets
	Limits    map[string]string `json:"limits"`
	Weaker    []sandbox.Feature `json:"weaker,omitempty"`
	Mechanism string            `json:"mechanism"`
}

// shown is a place inside.
type shown struct {
	Path     string `json:"path"`
	Source   string `json:"source"` // on the host, or what it is
	Writable bool   `json:"writable"`
}

// print says what the jail would be. The command is not run.
func (r *jailRun) print(ctx context.Context) error {
	command, weaker, err := r.spec.Plan(ctx, r.jail)
	if err != nil {
		return jailError(err)
	}
	spec := r.spec.WithDefaults()
	e := explanation{
		Backend: r.jail.Name(), Command: spec.Args, Policy: r.policy.File(), Preset: cmp.Or(string(spec.Preset), "strict"),
		View: view(spec, r.jail.Name()), Network: string(r.asked.Network), Hosts: r.allowed, Ask: r.ask, Publish: r.publish,
		Limits: limits(spec.Limits), Weaker: weaker, Mechanism: backends.Explain(r.jail.Name(), command),
	}
	if r.asked.Network == jobs.NetworkAllowlist {
		maps.Copy(e.Limits, budget(r.budget()))
	}
	for _, kv := range spec.Env {
		name, _, _ := strings.Cut(kv, "=")
		e.Env = append(e.Env, name)
	}
	if *r.shell.Format != cli.Table {
		return cli.View[explanation]{ID: func(explanation) string { return r.label }}.One(r.shell.Out, *r.shell.Format, e)
	}
	return cli.View[[2]string]{
		Header: []string{"PART", "WHAT"},
		Row:    func(line [2]string) []string { return line[:] },
	}.List(r.shell.Out, cli.Table, e.lines())
}

// view lists the places of a jail. Without a jail everything is as it is.
func view(s sandbox.Spec, backend string) []shown {
	if backend == "none" {
		return []shown{{"/", "the host, all of it", true}}
	}
	private := func(n int64) string { return "private, in memory, " + jobs.Bytes(n).String() }
	home := shown{sandbox.HomePath, s.Home, true}
	if s.Home == "" {
		home.Source = private(s.Limits.TmpSize)
	}
	all := []shown{
		{sandbox.WorkspacePath, s.Workspace, !s.WorkspaceReadOnly}, home,
		{"/tmp", private(s.Limits.TmpSize), true}, {"/dev/shm", private(s.Limits.ShmSize), true},
	}
	system := shown{"/usr", "the host's programs and libraries", false}
	if s.Image != "" {
		system = shown{"/", "the image " + s.Image, false}
	}
	all = append(all, system)
	for _, m := range s.Mounts {
		all = append(all, shown{m.Target, m.Source, m.Writable})
	}
	return all
}

func limits(l sandbox.Limits) map[string]string {
	all := map[string]string{}
	for name, v := range map[string]int64{
		"memory": l.Memory, "file_size": l.FileSize, "tmp": l.TmpSize, "shm": l.ShmSize, "disk": l.Disk, "output_rate": l.OutputRate,
	} {
		if v != 0 {
			all[name] = jobs.Bytes(v).String()
		}
	}
	for name, v := range map[string]float64{
		"cpus": l.CPUs, "pids": float64(l.PIDs), "open_files": float64(l.OpenFiles), "cpu_weight": float64(l.CPUWeight), "inodes": float64(l.Inodes),
	} {
		if v != 0 {
			all[name] = fmt.Sprint(v)
		}
	}
	return all
}

func budget(b policy.Budget) map[string]string {
	all := map[string]string{}
	if b.Traffic != 0 {
		all["traffic"] = jobs.Bytes(b.Traffic).String()
	}
	if b.Connections != 0 {
		all["connections"] = fmt.Sprint(b.Connections)
	}
	return all
}

// lines are the explanation as people read it.
func (e explanation) lines() [][2]string {
	lines := [][2]string{{"backend", e.Backend}, {"command", strings.Join(e.Command, " ")}, {"preset", e.Preset}}
	if e.Policy != "" {
		lines = append(lines, [2]string{"policy", e.Policy})
	}
	for _, s := range e.View {
		how := "read-only"
		if s.Writable {
			how = "writable"
		}
		lines = append(lines, [2]string{"view", fmt.Sprintf("%s = %s, %s", s.Path, s.Source, how)})
	}
	network := e.Network
	if len(e.Hosts) > 0 {
		network += ": " + strings.Join(e.Hosts, ", ")
	}
	if e.Ask {
		network += "; asks about others"
	}
	for _, port := range e.Publish {
		lines = append(lines, [2]string{"publish", port})
	}
	lines = append(lines, [2]string{"network", network}, [2]string{"env", strings.Join(e.Env, " ")})
	for _, name := range slices.Sorted(maps.Keys(e.Limits)) {
		lines = append(lines, [2]string{"limit", name + " " + e.Limits[name]})
	}
	if len(e.Weaker) > 0 {
		lines = append(lines, [2]string{"not enforced", join(e.Weaker)})
	}
	for line := range strings.Lines(e.Mechanism) {
		lines = append(lines, [2]string{"mechanism", strings.TrimSuffix(line, "\n")})
	}
	last := ""
	for i, line := range lines {
		if line[0] == last {
			lines[i][0] = "" // as the line above
		}
		last = line[0]
	}
	return lines
}
