package repo

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// blockingUnderLock finds a lock that is held across something that can block:
// a call that takes a context, a channel operation, a sleep. Whatever waits for
// the lock then waits for that, too. It sees one function at a time, and not what
// the functions called there do.
func blockingUnderLock(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		for fn := range p.functions {
			for _, held := range lockedRanges(fn.Body) {
				for _, n := range blocking(fn.Body) {
					if n.Pos() > held.from && n.Pos() < held.to {
						all = append(all, measure{p.Dir + "." + functionName(fn), 1, n,
							functionName(fn) + " can block while it holds " + held.name + ": decide under the lock, act after it"})
					}
				}
			}
		}
	}
	return all
}

// A lockedRange is the source between a lock and its release.
type lockedRange struct {
	name     string
	from, to token.Pos
}

// lockedRanges finds the locks of a function. A lock that is not released by a
// statement of its own is held to the end.
func lockedRanges(body *ast.BlockStmt) []lockedRange {
	var ranges []lockedRange
	inspectBody(body, func(n ast.Node) {
		stmt, ok := n.(*ast.ExprStmt)
		if !ok {
			return
		}
		name, verb := lockCall(stmt.X)
		switch verb {
		case "Lock", "RLock":
			ranges = append(ranges, lockedRange{name, stmt.End(), body.End()})
		case "Unlock", "RUnlock":
			for i := len(ranges) - 1; i >= 0; i-- {
				if ranges[i].name == name && ranges[i].to == body.End() {
					ranges[i].to = stmt.Pos()
					break
				}
			}
		}
	})
	return ranges
}

// lockCall returns the mutex of a call that locks or unlocks it, and which.
func lockCall(expr ast.Expr) (name, verb string) {
	call, ok := expr.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return "", ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	return types.ExprString(sel.X), sel.Sel.Name
}

// blocking finds what can block in a function's body: not what its function
// literals do, which run at another time.
func blocking(body *ast.BlockStmt) []ast.Node {
	var found []ast.Node
	polled := map[ast.Node]bool{} // the operations of a select that does not wait
	inspectBody(body, func(n ast.Node) {
		if s, ok := n.(*ast.SelectStmt); ok && hasDefault(s) {
			for _, clause := range s.Body.List {
				if comm := clause.(*ast.CommClause).Comm; comm != nil {
					ast.Inspect(comm, func(n ast.Node) bool { polled[n] = true; return true })
				}
			}
		}
		if !polled[n] && blocks(n) {
			found = append(found, n)
		}
	})
	return found
}

func hasDefault(s *ast.SelectStmt) bool {
	for _, clause := range s.Body.List {
		if clause.(*ast.CommClause).Comm == nil {
			return true
		}
	}
	return false
}

func blocks(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SendStmt:
		return true
	case *ast.UnaryExpr:
		return n.Op == token.ARROW
	case *ast.CallExpr:
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok && selector(sel) == "time.Sleep" {
			return true
		}
		return len(n.Args) > 0 && typeName(n.Args[0]) == "ctx" && !isDerivation(n)
	}
	return false
}

// isDerivation reports whether a call only makes a context of another one.
func isDerivation(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(selector(sel), "context.")
}

// inspectBody visits a function's statements in order, without those of the
// function literals in it.
func inspectBody(body *ast.BlockStmt, visit func(ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.FuncLit:
			return false
		}
		visit(n)
		return true
	})
}
