package repo

import (
	"go/ast"
	"slices"
	"strings"
)

// rawScreens are the functions that may write to a terminal what was not made
// visible, and why.
var rawScreens = map[string]string{
	"show":  "attach: the program in the jail's terminal draws the user's",
	"raw":   "attach: takes back what that program asked of it",
	"start": "sandbox run: the command has the user's terminal, as under any shell",
}

// oneWayOut: what a command prints goes through the writers of cmd/internal/console,
// which make visible what others wrote.
func oneWayOut(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		if p.Dir != "cmd/penstock" && !strings.HasPrefix(p.Dir, "cmd/penstock/") && p.Dir != "cmd/internal/cli" {
			continue
		}
		for f := range p.product {
			for _, decl := range f.Decls {
				found = append(found, printing(t, decl)...)
			}
		}
	}
	return found
}

func printing(t *Tree, decl ast.Decl) []Finding {
	var found []Finding
	within := ""
	if fn, ok := decl.(*ast.FuncDecl); ok {
		within = fn.Name.Name
	}
	for n := range ast.Preorder(decl) {
		switch n := n.(type) {
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			if _, may := rawScreens[within]; sel.Sel.Name == "Raw" && len(n.Args) == 0 && !may {
				found = append(found, t.at(n, "%s writes to the stream itself: what others wrote has to become visible first", within))
			}
			if name := selector(sel); strings.HasPrefix(name, "fmt.Print") || strings.HasPrefix(name, "fmt.Fprint") && !harmless(n.Args) {
				found = append(found, t.at(n, "%s to a stream: use the Printf of its console.Writer", name))
			}
		case *ast.SelectorExpr:
			if name := selector(n); within != "main" && slices.Contains([]string{"os.Stdout", "os.Stderr"}, name) {
				found = append(found, t.at(n, "%s: use the app's console.Writer", name))
			}
		}
	}
	return found
}

// harmless reports whether a print goes to a buffer, or to a stream that was
// asked for as it is.
func harmless(args []ast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	switch to := args[0].(type) {
	case *ast.UnaryExpr:
		return true // &b
	case *ast.CallExpr:
		sel, ok := to.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Raw"
	}
	return false
}
