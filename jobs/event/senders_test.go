package event_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/event"
)

// made lists the payloads that the code below a directory makes, by the names
// of their types: by a literal, or from a value of the same shape.
func made(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for n := range ast.Preorder(file) {
			var typ ast.Expr
			switch n := n.(type) {
			case *ast.CompositeLit:
				typ = n.Type
			case *ast.CallExpr:
				typ = n.Fun
			}
			if named, ok := typ.(*ast.SelectorExpr); ok {
				if of, ok := named.X.(*ast.Ident); ok && of.Name == "event" {
					names[named.Sel.Name] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Some product code sends every kind that the table does not promise for later,
// and none of those.
func TestEveryKindIsSent(t *testing.T) {
	names := map[string]bool{}
	for _, dir := range []string{"worker", "dispatcher", "jobs/session"} {
		made(t, filepath.Join("..", "..", filepath.FromSlash(dir)), names)
	}
	for _, row := range event.Kinds() {
		name := reflect.TypeOf(row.Payload).Name()
		if sent := names[name]; sent == (row.Sender == event.Later) {
			t.Errorf("%s is from %q in the table; that the code makes an event.%s is %v", row.Kind, row.Sender, name, sent)
		}
	}
}
