package repo

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// step is one name in a table of steps, with or without its file:
// `worker/worker.go: slot`, `pool.submit`.
var step = regexp.MustCompile("`(?:([a-z0-9_/]+\\.go): )?(?:[A-Za-z]+\\.)?([A-Za-z]+)`")

// steps checks the tables of steps in ARCHITECTURE.md: each row names functions,
// by file, that exist. A name without a file is in the file before it.
func steps(t *Tree) []Finding {
	functions := map[string]map[string]bool{}
	for _, p := range t.Packages {
		for f := range p.product {
			functions[f.Path] = map[string]bool{}
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok {
					functions[f.Path][fn.Name.Name] = true
				}
			}
		}
	}
	var found []Finding
	within := false
	for line := range strings.Lines(t.Texts["ARCHITECTURE.md"]) {
		cells := strings.Split(line, "|")
		if within = strings.HasPrefix(line, "| step | where |") || within && len(cells) == 4; !within {
			continue
		}
		file := ""
		for _, m := range step.FindAllStringSubmatch(cells[2], -1) {
			if m[1] != "" {
				file = m[1]
			}
			if !functions[file][m[2]] {
				found = append(found, Finding{"ARCHITECTURE.md", fmt.Sprintf("names %s in %q, where it is not: change the table of steps", m[2], file)})
			}
		}
	}
	return found
}
