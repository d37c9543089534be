// Package policy reads the files in which people state what jails may
// touch, and records refusals. The owner of a host or of a repository writes such
// a file once.
//
//	file ──Parse──▶ Policy ──Apply──▶ Spec          what is added to a job
//	                  └──────Permits──▶ error        what a job may not ask for
//
// A policy adds to the strictest jail; there is nothing to subtract from. An
// unknown field is an error with its line, because a misspelt
// restriction restricts nothing.
//
// A jail can ask for what is not listed: an [Asker] passes the question on to a
// person, and the answer is no unless that person says yes in time. A [Store]
// keeps the refusals.
package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bytesize"
	"github.com/penstock-run/penstock/sandbox/proxy"
	"go.yaml.in/yaml/v3"
)

// A Policy is the content of a file. The zero value adds nothing and forbids
// nothing.
type Policy struct {
	Read    []Pattern         `yaml:"read,omitempty" json:"read,omitempty"`       // shown inside, at the same path
	Write   []Pattern         `yaml:"write,omitempty" json:"write,omitempty"`     // shown inside, writable
	Hosts   []string          `yaml:"hosts,omitempty" json:"hosts,omitempty"`     // as package proxy reads them: reached with network allowlist, and where there are any, a job may ask for no others
	Env     map[string]string `yaml:"env,omitempty" json:"env,omitempty"`         // set inside
	Preset  string            `yaml:"preset,omitempty" json:"preset,omitempty"`   // strict, browser, debug, offline
	Network string            `yaml:"network,omitempty" json:"network,omitempty"` // the most that a job may ask for: none, allowlist, full
	Limits  Limits            `yaml:"limits,omitempty" json:"limits,omitzero"`    // the most that a job may ask for, and what it gets if it asks for nothing
	// Backends are those that a job may ask for; empty is all. Seatbelt has never run on a Mac.
	Backends []string          `yaml:"backends,omitempty" json:"backends,omitempty"`
	Weaker   []sandbox.Feature `yaml:"weaker,omitempty" json:"weaker,omitempty"` // features that may be absent

	file string
}

// Limits bound what a job may use. Sizes are written 512MiB, 10GB, or in bytes.
type Limits struct {
	Memory    Size    `yaml:"memory,omitempty" json:"memory,omitempty"`
	CPUs      float64 `yaml:"cpus,omitempty" json:"cpus,omitempty"`
	PIDs      int     `yaml:"pids,omitempty" json:"pids,omitempty"`
	FileSize  Size    `yaml:"file_size,omitempty" json:"file_size,omitempty"`
	OpenFiles int     `yaml:"open_files,omitempty" json:"open_files,omitempty"`
	Tmp       Size    `yaml:"tmp,omitempty" json:"tmp,omitempty"`
	Shm       Size    `yaml:"shm,omitempty" json:"shm,omitempty"`

	CPUWeight  int   `yaml:"cpu_weight,omitempty" json:"cpu_weight,omitempty"`
	Disk       Size  `yaml:"disk,omitempty" json:"disk,omitempty"`
	Inodes     int64 `yaml:"inodes,omitempty" json:"inodes,omitempty"`
	OutputRate Size  `yaml:"output_rate,omitempty" json:"output_rate,omitempty"` // a second

	Traffic     Size `yaml:"traffic,omitempty" json:"traffic,omitempty"`         // to and from the hosts of a list
	Connections int  `yaml:"connections,omitempty" json:"connections,omitempty"` // to them, at once
}

// A Budget is what the way to the hosts of a list may carry. Zero means that
// nothing was asked for.
type Budget struct {
	Traffic     int64 // bytes in both directions
	Connections int   // at once
}

// A Size is a number of bytes.
type Size int64

// String returns the size in the largest unit that it is a multiple of.
func (s Size) String() string { return bytesize.Format(int64(s)) }

// UnmarshalYAML reads 1048576, 1MiB, 10GB and the like.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := bytesize.Parse(n.Value)
	switch {
	case err != nil:
		return fmt.Errorf("line %d: %w", n.Line, err)
	case v == 0:
		return fmt.Errorf("line %d: a limit of %s allows nothing; write a size such as 512MiB or 10GB", n.Line, n.Value)
	}
	*s = Size(v)
	return nil
}

// maxFile bounds what is read of a policy file: one that is larger was named
// by mistake.
const maxFile = 1 << 20

// LoadInto reads the file at path into document, a pointer to a struct that holds
// the Policy inline beside fields of a program's own. It validates the Policy.
func LoadInto(path string, document any, p *Policy) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	f, err := os.Open(abs)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(b) > maxFile {
		return fmt.Errorf("%s is larger than %d bytes, and at most that is read", abs, maxFile)
	}
	return ParseInto(abs, b, document, p)
}

// Parse reads YAML, or JSON, as the content of the file at an absolute path.
func Parse(file string, b []byte) (p Policy, err error) {
	err = ParseInto(file, b, &p, &p)
	return p, err
}

// ParseInto reads a document as [LoadInto] does.
func ParseInto(file string, b []byte, document any, p *Policy) error {
	p.file = file
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(document); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s%w", p.prefix(), err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		// A second document would have no effect, and the author would not notice.
		return fmt.Errorf("%shas more than one document", p.prefix())
	}
	return p.validate()
}

// File returns the path of the file that the policy was read from; "" where
// it was put together by a program.
func (p Policy) File() string { return p.file }

func (p Policy) validate() error {
	for field, patterns := range map[string][]Pattern{"read": p.Read, "write": p.Write} {
		for i, pattern := range patterns {
			if err := pattern.validate(); err != nil {
				return fmt.Errorf("%s%s[%d]: %w", p.prefix(), field, i, err)
			}
		}
	}
	if err := cmp.Or(
		p.CheckWords("preset", []string{p.Preset}, "", "strict", "browser", "debug", "offline"),
		p.CheckWords("network", []string{p.Network}, networks...),
		p.CheckWords("backends", p.Backends, "bwrap", "systemd", "oci", "seatbelt", "none"),
	); err != nil {
		return err
	}
	for key := range p.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			return fmt.Errorf("%senv: %q is not the name of a variable", p.prefix(), key)
		}
	}
	if _, err := proxy.ParseRules(p.Hosts...); err != nil {
		return fmt.Errorf("%shosts: %w", p.prefix(), err)
	}
	if n := p.Limits.Connections; n < 0 || n > maxConnections {
		return fmt.Errorf("%slimits.connections: %d is not between 1 and %d", p.prefix(), n, maxConnections)
	}
	// The limits have to make a jail possible.
	spec := sandbox.Spec{Args: []string{"true"}}
	for _, l := range p.Limits.pairs(&spec.Limits) {
		l.set(l.most())
	}
	if err := spec.Validate(); err != nil {
		return fmt.Errorf("%slimits: %w", p.prefix(), err)
	}
	return nil
}

// CheckWords reports a value of a field that is none of the known words, as every
// mistake in the policy's file is reported. The word "" means that nothing is said.
func (p Policy) CheckWords(field string, values []string, known ...string) error {
	for _, v := range values {
		if !slices.Contains(known, v) {
			return fmt.Errorf("%s%s: %q is not one of %s", p.prefix(), field, v, strings.TrimPrefix(strings.Join(known, ", "), ", "))
		}
	}
	return nil
}

// maxConnections bounds what a jail may cost its runner: each connection takes
// two descriptors.
const maxConnections = 4096

// networks are the words of jobs, from the least to the most; "" is no
// opinion.
var networks = []string{"", "none", "allowlist", "full"}

// prefix begins an error about a policy.
func (p Policy) prefix() string {
	if p.file == "" {
		return ""
	}
	return "policy " + p.file + ": "
}
