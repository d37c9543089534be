// Package policy reads the files in which people write down what jails may
// touch, and keeps what was refused since. They are written once,
// by those who own a host or a repository.
//
//	file ──Parse──▶ Policy ──Apply──▶ Spec          what is added to a job
//	                  └──────Permits──▶ error        what a job may not ask for
//
// A policy adds to the strictest jail; there is nothing to subtract from. A
// field that is not known is an error with its line, because a misspelt
// restriction is none.
package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"go.yaml.in/yaml/v3"
)

// A Policy is the content of a file. The zero value adds nothing and forbids
// nothing.
type Policy struct {
	Read     []Pattern         `yaml:"read,omitempty" json:"read,omitempty"`         // shown inside, at the same path
	Write    []Pattern         `yaml:"write,omitempty" json:"write,omitempty"`       // shown inside, writable
	Hosts    []string          `yaml:"hosts,omitempty" json:"hosts,omitempty"`       // as package proxy reads them
	Env      map[string]string `yaml:"env,omitempty" json:"env,omitempty"`           // set inside
	Preset   string            `yaml:"preset,omitempty" json:"preset,omitempty"`     // strict, browser, debug, offline
	Network  string            `yaml:"network,omitempty" json:"network,omitempty"`   // the most that a job may ask for: none, allowlist, full
	Limits   Limits            `yaml:"limits,omitempty" json:"limits,omitzero"`      // the most that a job may ask for, and what it gets if it asks for nothing
	Modes    []string          `yaml:"modes,omitempty" json:"modes,omitempty"`       // isolation modes that a job may ask for; empty is all
	Backends []string          `yaml:"backends,omitempty" json:"backends,omitempty"` // backends that a job may ask for; empty is all
	Weaker   []sandbox.Feature `yaml:"weaker,omitempty" json:"weaker,omitempty"`     // features that may be absent

	file string
}

// Limits bound what a job may use. Sizes are written 512MiB, 2GiB, or in bytes.
type Limits struct {
	Memory    Size    `yaml:"memory,omitempty" json:"memory,omitempty"`
	CPUs      float64 `yaml:"cpus,omitempty" json:"cpus,omitempty"`
	PIDs      int     `yaml:"pids,omitempty" json:"pids,omitempty"`
	FileSize  Size    `yaml:"file_size,omitempty" json:"file_size,omitempty"`
	OpenFiles int     `yaml:"open_files,omitempty" json:"open_files,omitempty"`
	Tmp       Size    `yaml:"tmp,omitempty" json:"tmp,omitempty"`
	Shm       Size    `yaml:"shm,omitempty" json:"shm,omitempty"`
}

// A Size is a number of bytes.
type Size int64

// UnmarshalYAML reads 1048576, 1MiB, 1GiB and the like.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	number, unit := n.Value, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if v, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(v), u
			break
		}
	}
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil || v <= 0 || v > (1<<62)/unit {
		return fmt.Errorf("line %d: %q is not a size; write 512MiB, 2GiB or a number of bytes", n.Line, n.Value)
	}
	*s = Size(v * unit)
	return nil
}

// A DeniedError reports what a job asked for and the policy does not permit.
type DeniedError struct {
	File  string // the policy's
	Field string // of the policy
	Value string // what was asked for
	Most  string // what would be permitted
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("policy %s: %s: %s is not permitted; permitted is %s", e.File, e.Field, e.Value, e.Most)
}

// Load reads the file at path.
func Load(path string) (Policy, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Policy{}, err
	}
	b, err := os.ReadFile(abs)
	if err != nil {
		return Policy{}, err
	}
	return Parse(abs, b)
}

// Parse reads YAML, or JSON, as the content of the file at an absolute path.
func Parse(file string, b []byte) (Policy, error) {
	p := Policy{}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return Policy{}, fmt.Errorf("policy %s: %w", file, err)
	}
	p.file = file
	return p, p.validate()
}

func (p Policy) validate() error {
	for field, patterns := range map[string][]Pattern{"read": p.Read, "write": p.Write} {
		for i, pattern := range patterns {
			if err := pattern.validate(); err != nil {
				return fmt.Errorf("policy %s: %s[%d]: %w", p.file, field, i, err)
			}
		}
	}
	for _, c := range []struct {
		field, value string
		known        []string
	}{
		{"preset", p.Preset, []string{"", "strict", "browser", "debug", "offline"}},
		{"network", p.Network, networks},
	} {
		if !slices.Contains(c.known, c.value) {
			return fmt.Errorf("policy %s: %s: %q is not one of %s", p.file, c.field, c.value, strings.Join(c.known[1:], ", "))
		}
	}
	for key := range p.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			return fmt.Errorf("policy %s: env: %q is not the name of a variable", p.file, key)
		}
	}
	if l := p.Limits; l.CPUs < 0 || l.PIDs < 0 || l.OpenFiles < 0 {
		return fmt.Errorf("policy %s: limits: a number is negative", p.file)
	}
	return nil
}

// networks are the words of jobs, from the least to the most; "" is no
// opinion.
var networks = []string{"", "none", "allowlist", "full"}

// A Request is what a job asks for, in the words of jobs.
type Request struct {
	Mode    string // none, worktree, container
	Backend string
	Network string
	Limits  sandbox.Limits
}

// Permits reports all that the policy does not permit, each as a
// [DeniedError].
func (p Policy) Permits(r Request) error {
	var denied []error
	deny := func(field, value, most string) {
		denied = append(denied, &DeniedError{File: p.file, Field: field, Value: value, Most: most})
	}
	if len(p.Modes) > 0 && !slices.Contains(p.Modes, r.Mode) {
		deny("modes", r.Mode, strings.Join(p.Modes, ", "))
	}
	if len(p.Backends) > 0 && r.Backend != "auto" && !slices.Contains(p.Backends, r.Backend) {
		deny("backends", r.Backend, strings.Join(p.Backends, ", "))
	}
	if p.Network != "" && slices.Index(networks, r.Network) > slices.Index(networks, p.Network) {
		deny("network", r.Network, p.Network)
	}
	for _, l := range p.Limits.pairs(&r.Limits) {
		if most := l.most(); most > 0 && l.asked() > most {
			deny("limits."+l.field, strconv.FormatFloat(l.asked(), 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64))
		}
	}
	return errors.Join(denied...)
}
