package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Apply returns spec with what the policy adds. Where says what its patterns
// are relative to.
func (p Policy) Apply(spec sandbox.Spec, where Where) (sandbox.Spec, error) {
	mounts, err := p.mounts(where)
	if err != nil {
		return spec, err
	}
	spec.Mounts = slices.Concat(spec.Mounts, mounts)
	spec.Env = p.environment(spec)
	if spec.Preset == sandbox.PresetStrict && p.Preset != "strict" {
		spec.Preset = sandbox.Preset(p.Preset)
	}
	spec.Limits = p.Limits.Fill(spec.Limits)
	spec = spec.Allow(p.Weaker...)
	if err := spec.Validate(); err != nil {
		return spec, fmt.Errorf("%s%w", p.prefix(), err)
	}
	return spec, nil
}

// Fill returns the limits in force where those were asked for.
func (l Limits) Fill(asked sandbox.Limits) sandbox.Limits {
	fill(l.pairs(&asked))
	return asked
}

// FillBudget does the same for the way out.
func (l Limits) FillBudget(asked Budget) Budget {
	fill(l.wayOut(&asked))
	return asked
}

func fill(pairs []pair) {
	for _, p := range pairs {
		if most := p.most(); most > 0 && p.asked() == 0 {
			p.set(most)
		}
	}
}

// mounts are what the policy's patterns name.
func (p Policy) mounts(where Where) ([]sandbox.Mount, error) {
	where.file = p.file
	var mounts []sandbox.Mount
	for _, group := range []struct {
		field    string
		patterns []Pattern
		writable bool
	}{{"read", p.Read, false}, {"write", p.Write, true}} {
		for i, pattern := range group.patterns {
			paths, err := pattern.expand(where)
			if err != nil {
				return nil, fmt.Errorf("%s%s[%d]: %w", p.prefix(), group.field, i, err)
			}
			for _, f := range paths {
				mounts = append(mounts, sandbox.Mount{Source: f.source, Target: f.path, Writable: group.writable})
			}
		}
	}
	return mounts, nil
}

// environment adds the policy's variables; what the job set itself stays.
func (p Policy) environment(spec sandbox.Spec) []string {
	if len(p.Env) == 0 {
		return spec.Env
	}
	env := slices.Clone(spec.WithDefaults().Env)
	has := func(key string) bool {
		return slices.ContainsFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") })
	}
	for key, value := range p.Env {
		if !has(key) {
			env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, key+"=") })
			env = append(env, key+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

// A pair is a limit of the policy and the same of a job.
type pair struct {
	field string
	most  func() float64
	asked func() float64
	set   func(float64)
	text  func(float64) string
}

func (l Limits) pairs(s *sandbox.Limits) []pair {
	return []pair{
		size("memory", l.Memory, &s.Memory), number("cpus", l.CPUs, &s.CPUs), number("pids", l.PIDs, &s.PIDs),
		size("file_size", l.FileSize, &s.FileSize), number("open_files", l.OpenFiles, &s.OpenFiles),
		size("tmp", l.Tmp, &s.TmpSize), size("shm", l.Shm, &s.ShmSize),
		number("cpu_weight", l.CPUWeight, &s.CPUWeight), size("disk", l.Disk, &s.Disk),
		number("inodes", l.Inodes, &s.Inodes), size("output_rate", l.OutputRate, &s.OutputRate),
	}
}

func (l Limits) wayOut(b *Budget) []pair {
	return []pair{size("traffic", l.Traffic, &b.Traffic), number("connections", l.Connections, &b.Connections)}
}

func number[T ~int | ~int64 | ~float64](field string, most T, asked *T) pair {
	return pair{
		field: field,
		most:  func() float64 { return float64(most) },
		asked: func() float64 { return float64(*asked) },
		set:   func(v float64) { *asked = T(v) },
		text:  func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) },
	}
}

func size(field string, most Size, asked *int64) pair {
	p := number(field, int64(most), asked)
	p.text = func(v float64) string { return Size(v).String() }
	return p
}
