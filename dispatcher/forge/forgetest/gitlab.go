package forgetest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// describeGitLab reads GitLab's own client for Go, of which each method says which path it
// asks for, what it sends and what it expects. No registry of packages has GitLab's OpenAPI
// description.
func describeGitLab() (*description, error) {
	dir, err := module(gitlabModule)
	if dir == "" {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	c := goClient{routes: map[string]string{}, types: map[string]ast.Expr{}, written: map[string]bool{}}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			c.add(decl)
		}
	}
	data, err := json.Marshal(map[string]any{"paths": c.paths(), "components": map[string]any{"schemas": c.schemas()}})
	if err != nil {
		return nil, err
	}
	return read(data, true)
}

// A goClient is what the source of the client declares.
type goClient struct {
	routes  map[string]string // templates of paths, by the names of their variables
	types   map[string]ast.Expr
	written map[string]bool // types that write themselves
	methods []*ast.FuncDecl
}

func (c *goClient) add(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return
		}
		if d.Name.Name == "MarshalJSON" {
			c.written[nameOf(d.Recv.List[0].Type)] = true
		}
		c.methods = append(c.methods, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				c.types[s.Name.Name] = s.Type
			case *ast.ValueSpec:
				for i, value := range s.Values {
					if call, ok := value.(*ast.CallExpr); ok && nameOf(call.Fun) == "route" && len(call.Args) == 1 {
						c.routes[s.Names[i].Name] = text(call.Args[0])
					}
				}
			}
		}
	}
}

// nameOf is the name of a type or a function, without what stands around it.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.X) + "." + e.Sel.Name
	}
	return ""
}

func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		value, err := strconv.Unquote(literal.Value)
		if err == nil {
			return value
		}
	}
	return ""
}

// verb is where a path has a parameter.
var verb = regexp.MustCompile(`%[sdv]`)

// paths are the operations of the methods.
func (c *goClient) paths() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, m := range c.methods {
		method, route := "get", ""
		ast.Inspect(m, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			switch nameOf(call.Fun) {
			case "withMethod":
				method = strings.ToLower(strings.TrimPrefix(nameOf(call.Args[0]), "http.Method"))
			case "withPath":
				route = c.routes[nameOf(call.Args[0])]
			}
			return true
		})
		if route == "" || m.Type.Results == nil {
			continue
		}
		path := "/" + verb.ReplaceAllString(route, "{id}")
		if all[path] == nil {
			all[path] = map[string]any{}
		}
		all[path][method] = c.operation(m, all[path][method])
	}
	return all
}

// operation is what a method sends and expects. Another method may ask for the same.
func (c *goClient) operation(m *ast.FuncDecl, other any) map[string]any {
	sent, got, parameters := []any{}, []any{}, []any{}
	if known, ok := other.(map[string]any); ok {
		sent, got = choices(known["requestBody"]), choices(known["responses"].(map[string]any)["default"])
		parameters = known["parameters"].([]any)
	}
	for _, p := range m.Type.Params.List {
		if name := nameOf(p.Type); strings.HasSuffix(name, "Options") && c.types[name] != nil {
			sent = append(sent, ref(name))
			for parameter := range c.fields(name, "url") {
				parameters = append(parameters, map[string]any{"name": parameter})
			}
		}
	}
	got = append(got, c.schema(m.Type.Results.List[0].Type))
	return map[string]any{"parameters": parameters, "requestBody": anyOf(sent), "responses": map[string]any{"default": anyOf(got)}}
}

func anyOf(schemas []any) any {
	return map[string]any{"content": map[string]any{"application/json": map[string]any{"schema": map[string]any{"anyOf": schemas}}}}
}

func choices(of any) []any {
	for _, key := range []string{"content", "application/json", "schema", "anyOf"} {
		inner, ok := of.(map[string]any)
		if !ok {
			return nil
		}
		of = inner[key]
	}
	list, _ := of.([]any)
	return list
}

func ref(name string) map[string]any { return map[string]any{"$ref": "#/components/schemas/" + name} }

func (c *goClient) schemas() map[string]any {
	all := map[string]any{}
	for name, of := range c.types {
		if c.written[name] {
			all[name] = map[string]any{}
			continue
		}
		all[name] = c.schema(of)
		if _, is := of.(*ast.StructType); is {
			all[name] = map[string]any{"type": "object", "properties": c.fields(name, "json")}
		}
	}
	return all
}

// fields are the schemas of the fields of a struct, by the names that a tag gives them.
func (c *goClient) fields(of, tag string) map[string]any {
	all := map[string]any{}
	whole, ok := c.types[of].(*ast.StructType)
	if !ok {
		return all
	}
	for _, f := range whole.Fields.List {
		if len(f.Names) == 0 {
			maps.Copy(all, c.fields(nameOf(f.Type), tag))
		}
		if f.Tag != nil {
			name, _, _ := strings.Cut(reflect.StructTag(text(f.Tag)).Get(tag), ",")
			all[name] = c.schema(f.Type)
		}
	}
	return all
}

// schema is that of a type as JSON has it. What is nil in Go may be null.
func (c *goClient) schema(of ast.Expr) any {
	switch e := of.(type) {
	case *ast.StarExpr:
		return map[string]any{"anyOf": []any{c.schema(e.X), map[string]any{"type": "null"}}}
	case *ast.ArrayType:
		return map[string]any{"type": "array", "items": c.schema(e.Elt)}
	}
	switch name := nameOf(of); {
	case c.types[name] != nil:
		return ref(name)
	case name == "string" || name == "time.Time":
		return map[string]any{"type": "string"}
	case name == "bool":
		return map[string]any{"type": "boolean"}
	case strings.HasPrefix(name, "int"):
		return map[string]any{"type": "integer"}
	case strings.HasPrefix(name, "float"):
		return map[string]any{"type": "number"}
	}
	return map[string]any{} // of which nothing is said
}
