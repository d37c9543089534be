package sandboxtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The list of features is the one of package sandbox.
func TestFeaturesAreAll(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../sandbox.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []sandbox.Feature
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Feature" {
				name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, sandbox.Feature(name))
			}
		}
		return true
	})
	if got := Features(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
