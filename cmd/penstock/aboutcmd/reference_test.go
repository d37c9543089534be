package aboutcmd

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/exit-codes.md")

// TestReference holds docs/reference/exit-codes.md against the table.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Exit codes\n\nThis page is made from the program: `make generate` writes it. Scripts may depend on these codes.\n" + severalJobs + " `penstock help exit-codes` prints the list.\n\n| code | meaning |\n|---|---|\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", c.code, strings.ReplaceAll(c.meaning, "--timeout", "`--timeout`"))
	}
	goldentest.Compare(t, "../../../docs/reference/exit-codes.md", b.String(), *update)
}

// Each constant of an exit code is in the table, in order and once.
func TestEveryExitCodeIsExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/cli/exit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants int
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Exit") {
			constants++
		}
		return true
	})
	if len(exitCodes) != constants || constants == 0 {
		t.Errorf("got %d codes with an explanation, want %d", len(exitCodes), constants)
	}
	for i, c := range exitCodes {
		if c.meaning == "" || i > 0 && exitCodes[i-1].code >= c.code {
			t.Errorf("got %v: without a meaning, or not after the one before", c)
		}
	}
}
