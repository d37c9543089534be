package bwrap

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// etc lets Start show all that a jail with spec has in /etc. It is left to
// bubblewrap where the Spec mounts something there, or where a file would be
// hidden below a directory of the host, which bubblewrap refuses.
func (h host) etc(spec sandbox.Spec, c *sandbox.Command) {
	const dir = "/etc"
	in := func(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }
	if slices.ContainsFunc(h.Mounts, func(m sandbox.Mount) bool { return in(m.Target, dir) }) {
		return
	}
	d := c.Directory
	d.Path = dir
	for _, m := range h.Shared {
		if in(m.Target, dir) {
			d.Mounts = append(d.Mounts, m)
		}
	}
	for _, f := range slices.Concat(h.Files(spec), spec.Files) {
		if !in(f.Path, dir) {
			continue
		}
		if slices.ContainsFunc(d.Mounts, func(m sandbox.Mount) bool { return f.Path == m.Target || in(f.Path, m.Target) || in(m.Target, f.Path) }) {
			return
		}
		d.Files = append(d.Files, f)
	}
	c.Directory = d
}
