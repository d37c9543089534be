package bwrap

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// cover is what Start changes of the view of a jail with spec.
func (h host) cover(spec sandbox.Spec) mechanism.Cover {
	return mechanism.Cover{
		Hidden: h.Hidden, ReadOnly: h.ReadOnly, Devices: spec.Limits.ShmSize, Directory: h.etc(spec),
	}
}

// etc is all that a jail with spec has in /etc. It is left to bubblewrap where the
// Spec mounts something there, or where a file would be hidden below a directory of
// the host, which bubblewrap refuses.
func (h host) etc(spec sandbox.Spec) mechanism.Directory {
	const dir = "/etc"
	in := func(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }
	if slices.ContainsFunc(h.Mounts, func(m sandbox.Mount) bool { return in(m.Target, dir) }) {
		return mechanism.Directory{}
	}
	d := mechanism.Directory{Path: dir}
	for _, m := range h.Shared {
		if in(m.Target, dir) {
			d.Mounts = append(d.Mounts, mechanism.Mount{Source: m.Source, Target: m.Target})
		}
	}
	for _, f := range slices.Concat(h.Files(spec), spec.Files) {
		if !in(f.Path, dir) {
			continue
		}
		if slices.ContainsFunc(d.Mounts, func(m mechanism.Mount) bool {
			return f.Path == m.Target || in(f.Path, m.Target) || in(m.Target, f.Path)
		}) {
			return mechanism.Directory{}
		}
		d.Files = append(d.Files, mechanism.File(f))
	}
	return d
}
