package repo

import (
	"go/ast"
	"slices"
	"strings"
)

// jailStarters are the packages of a worker that may start jails: what they start has the
// mark of the worker's pool, which callers of the last one name. Without it no worker ends what a killed one left of a jail.
var jailStarters = []string{"worker/poolmark", "worker/internal/jails", "worker/agent/harness"}

// markedJails: a jail that a worker starts has the mark of its pool.
func markedJails(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		if p.Dir != "worker" && !strings.HasPrefix(p.Dir, "worker/") || slices.Contains(jailStarters, p.Dir) {
			continue
		}
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"sandbox.Start", "sandbox.Run"}, selector(sel)) {
					found = append(found, t.at(sel, "%s: a worker's jails are started by %s, so that they have the mark of their pool", selector(sel), strings.Join(jailStarters[:2], " and ")))
				}
			}
		}
	}
	return found
}
