package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Apply returns spec with what the policy adds. Where says what its patterns
// are relative to.
func (p Policy) Apply(spec sandbox.Spec, where Where) (sandbox.Spec, error) {
	where.file = p.file
	spec.Mounts = slices.Clone(spec.Mounts)
	for _, group := range []struct {
		field    string
		patterns []Pattern
		writable bool
	}{{"read", p.Read, false}, {"write", p.Write, true}} {
		for i, pattern := range group.patterns {
			paths, err := pattern.expand(where)
			if err != nil {
				return spec, fmt.Errorf("policy %s: %s[%d]: %w", p.file, group.field, i, err)
			}
			for _, path := range paths {
				spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: path, Target: path, Writable: group.writable})
			}
		}
	}
	spec.Env = p.environment(spec)
	if spec.Preset == sandbox.PresetStrict && p.Preset != "strict" {
		spec.Preset = sandbox.Preset(p.Preset)
	}
	for _, l := range p.Limits.pairs(&spec.Limits) {
		if most := l.most(); most > 0 && l.asked() == 0 {
			l.set(most)
		}
	}
	spec = spec.Allow(p.Weaker...)
	if err := spec.Validate(); err != nil {
		return spec, fmt.Errorf("policy %s: %w", p.file, err)
	}
	return spec, nil
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
}

func (l Limits) pairs(s *sandbox.Limits) []pair {
	return []pair{
		newPair("memory", l.Memory, &s.Memory), newPair("cpus", l.CPUs, &s.CPUs), newPair("pids", l.PIDs, &s.PIDs),
		newPair("file_size", l.FileSize, &s.FileSize), newPair("open_files", l.OpenFiles, &s.OpenFiles),
		newPair("tmp", l.Tmp, &s.TmpSize), newPair("shm", l.Shm, &s.ShmSize),
	}
}

type number interface{ ~int | ~int64 | ~float64 }

func newPair[A, B number](field string, most A, asked *B) pair {
	return pair{
		field: field,
		most:  func() float64 { return float64(most) },
		asked: func() float64 { return float64(*asked) },
		set:   func(v float64) { *asked = B(v) },
	}
}
