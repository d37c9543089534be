package repo

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

func sizes(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for f := range p.product {
			if f.Lines > MaxFile {
				found = append(found, Finding{f.Path, fmt.Sprintf("%d lines: split it, at most %d are allowed", f.Lines, MaxFile)})
			}
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || fn.Body == nil || strings.HasSuffix(p.Dir, "test") {
					continue // a table of cases may be long, here as in a test file
				}
				lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
				if lines > MaxFunc {
					found = append(found, t.at(fn, "%s has %d lines: split it, at most %d are allowed", fn.Name.Name, lines, MaxFunc))
				}
			}
		}
	}
	return found
}

func exportedNames(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		var names []string
		for f := range p.product {
			for _, decl := range f.Decls {
				names = append(names, exported(decl)...)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names) // one file for each operating system
		if most := max(MaxExported, moreExported[p.Dir]); len(names) > most {
			found = append(found, Finding{p.Dir, fmt.Sprintf("%d exported names, at most %d are allowed: %v", len(names), most, names)})
		}
	}
	return found
}

// exported lists the names that a declaration adds to the package's face. The
// constants of one group are one thing to learn, and count as one.
func exported(decl ast.Decl) []string {
	var names []string
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						names = append(names, n.Name)
					}
				}
			}
		}
		if d.Tok == token.CONST && len(names) > 1 {
			names = names[:1]
		}
	}
	return names
}

func interfaces(t *Tree) []Finding {
	return t.inspect(func(n ast.Node) []Finding {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return nil
		}
		face, ok := spec.Type.(*ast.InterfaceType)
		if !ok || face.Methods.NumFields() <= MaxMethods {
			return nil
		}
		return []Finding{t.at(spec, "interface %s has %d methods, at most %d are allowed", spec.Name.Name, face.Methods.NumFields(), MaxMethods)}
	})
}

func parameters(t *Tree) []Finding {
	return t.inspect(func(n ast.Node) []Finding {
		fn, ok := n.(*ast.FuncDecl)
		if !ok {
			return nil
		}
		count := fn.Type.Params.NumFields()
		if count > 0 && isContext(fn.Type.Params.List[0].Type) {
			count--
		}
		if count <= MaxParameter {
			return nil
		}
		return []Finding{t.at(fn, "%s has %d parameters, at most %d are allowed: use a struct", fn.Name.Name, count, MaxParameter)}
	})
}

// inspect calls look for every node of the product's files.
func (t *Tree) inspect(look func(ast.Node) []Finding) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				found = append(found, look(n)...)
			}
		}
	}
	return found
}

func isContext(expr ast.Expr) bool {
	sel, ok := expr.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "context" && sel.Sel.Name == "Context"
}
