package subject

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/subjects.md")

const head = "# Subjects, streams and buckets\n\nThis page is made from the program: `make generate` writes it. It has the names with the prefix `penstock.v1`, which\n`prefix` of the [settings](settings.md) changes. What stands in braces is one token, of a-z, 0-9 and `-`; `>` is the\nrest of a subject. Programs publish to `submit`, ask `api` and read `events`, as their roles allow; the other subjects are\nfor the parts of Penstock among themselves, and may change. `penstock schema asyncapi` describes the messages.\n"

// TestReference holds docs/reference/subjects.md against the names of this package and
// their comments.
func TestReference(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "subject.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	names, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(head + "\n## Subjects\n\n| subject | what it is |\n|---|---|\n")
	for _, decl := range file.Decls {
		method, ok := decl.(*ast.FuncDecl)
		if !ok || method.Recv == nil || !method.Name.IsExported() || len(method.Type.Results.List) > 1 {
			continue
		}
		call := reflect.ValueOf(names).MethodByName(method.Name.Name)
		var arguments []reflect.Value
		for _, field := range method.Type.Params.List {
			for _, name := range field.Names {
				arguments = append(arguments, reflect.ValueOf("{"+name.Name+"}"))
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", call.Call(arguments)[0], sentence(t, method))
	}
	for i, title := range []string{"Streams", "Buckets"} {
		fmt.Fprintf(&b, "\n## %s\n\n| name | what it keeps |\n|---|---|\n", title)
		for _, spec := range constants(file)[i].Specs {
			value := spec.(*ast.ValueSpec)
			name, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil || value.Comment == nil {
				t.Fatalf("%v: %v, or it has no comment", value.Names, err)
			}
			if name == Queues {
				name = QueueStream("{queue}", "{lane}")
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.TrimSuffix(strings.TrimSpace(value.Comment.Text()), "; this begins the name"))
		}
	}
	goldentest.Compare(t, "../../../docs/reference/subjects.md", b.String(), *update)
}

// constants are the groups of them.
func constants(file *ast.File) []*ast.GenDecl {
	var all []*ast.GenDecl
	for _, decl := range file.Decls {
		if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.CONST {
			all = append(all, group)
		}
	}
	return all
}

// sentence is a method's comment without its name.
func sentence(t *testing.T, method *ast.FuncDecl) string {
	text := strings.Join(strings.Fields(method.Doc.Text()), " ")
	rest, ok := strings.CutPrefix(text, method.Name.Name+" ")
	if !ok || text == "" {
		t.Errorf("the comment of %s begins %.20q", method.Name.Name, text)
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "the subject of "), ".")
}
