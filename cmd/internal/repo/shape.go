package repo

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

func functionLines(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		if strings.HasSuffix(p.Dir, "test") {
			continue // a table of cases may be long, here as in a test file
		}
		for fn := range p.functions {
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			all = append(all, measure{p.Dir + "." + functionName(fn), lines, fn, "lines of " + functionName(fn) + ": split it"})
		}
	}
	return all
}

func fileLines(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		for f := range p.product {
			all = append(all, measure{f.Path, f.Lines, nil, "lines: split it by subject"})
		}
	}
	return all
}

func packageLines(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		lines := 0
		for f := range p.product {
			lines += f.Lines
		}
		if !strings.HasSuffix(p.Dir, "test") {
			all = append(all, measure{p.Dir, lines, nil, "lines of product code: split it by purpose"})
		}
	}
	return all
}

func typeMethods(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		methods := map[string]map[string]bool{} // once, where a system has its own file
		for fn := range p.functions {
			if name := receiver(fn); name != "" {
				if methods[name] == nil {
					methods[name] = map[string]bool{}
				}
				methods[name][fn.Name.Name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(methods)) {
			all = append(all, measure{p.Dir + "." + name, len(methods[name]), nil, "methods: find the types in it"})
		}
	}
	return all
}

// receiver is the name of the type that a method is declared on.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// functionName is a function's name, a method's with its type.
func functionName(fn *ast.FuncDecl) string {
	if name := receiver(fn); name != "" {
		return name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func interfaceMethods(t *Tree) []measure {
	var all []measure
	for p, n := range t.nodes {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if face, ok := spec.Type.(*ast.InterfaceType); ok {
			all = append(all, measure{p.Dir + "." + spec.Name.Name, face.Methods.NumFields(), spec, "methods of interface " + spec.Name.Name})
		}
	}
	return all
}

func exportedNames(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		var names []string
		for f := range p.product {
			for _, decl := range f.Decls {
				names = append(names, exported(decl)...)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names) // one file for each operating system
		all = append(all, measure{p.Dir, len(names), nil, "exported names " + strings.Join(names, " ")})
	}
	return all
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

func parameters(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		for f := range p.product {
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				count := fn.Type.Params.NumFields()
				if count > 0 && isContext(fn.Type.Params.List[0].Type) {
					count--
				}
				all = append(all, measure{p.Dir + "." + functionName(fn), count, fn, "parameters of " + functionName(fn) + ": use a struct with named fields"})
			}
		}
	}
	return all
}

// embedding finds structs that embed what has a lifecycle of its own: a mutex,
// a context, a connection, or a struct of the same package that holds a mutex.
// Its methods and fields become the outer one's, so that no reader can tell
// which of both a name belongs to, nor what the lock guards.
func embedding(t *Tree) []measure {
	var all []measure
	for _, p := range t.Packages {
		locked := p.lockedStructs()
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					continue
				}
				body, ok := spec.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range body.Fields.List {
					if name := typeName(field.Type); len(field.Names) == 0 && (locked[name] || slices.Contains(lifecycles, name)) {
						all = append(all, measure{p.Dir + "." + spec.Name.Name, 1, field, spec.Name.Name + " embeds " + name + ": make it a field with a name"})
					}
				}
			}
		}
	}
	return all
}

// lifecycles are types that no struct embeds.
var lifecycles = []string{"sync.Mutex", "sync.RWMutex", "sync.WaitGroup", "context.Context", "nats.Conn", "os.File", "exec.Cmd"}

// lockedStructs names the package's structs that hold a mutex, by value, in a
// field or by a struct that they embed.
func (p *Package) lockedStructs() map[string]bool {
	structs := map[string]*ast.StructType{}
	for f := range p.product {
		for n := range ast.Preorder(f.File) {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if body, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = body
				}
			}
		}
	}
	locked := map[string]bool{}
	for range structs { // what embeds a locked struct is locked; at most so many steps
		for name, body := range structs {
			for _, field := range body.Fields.List {
				held := typeName(field.Type)
				if held == "sync.Mutex" || held == "sync.RWMutex" || len(field.Names) == 0 && locked[held] {
					locked[name] = true
				}
			}
		}
	}
	return locked
}

// typeName is the name of a type or of what it points to, with its package.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return selector(e)
	}
	return ""
}

// functions yields the functions and methods of the product that have a body.
func (p *Package) functions(yield func(*ast.FuncDecl) bool) {
	for f := range p.product {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil && !yield(fn) {
				return
			}
		}
	}
}

// nodes yields every node of the product's files.
func (t *Tree) nodes(yield func(*Package, ast.Node) bool) {
	for _, p := range t.Packages {
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				if !yield(p, n) {
					return
				}
			}
		}
	}
}

func isContext(expr ast.Expr) bool { return typeName(expr) == "context.Context" }
