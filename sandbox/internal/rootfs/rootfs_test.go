package rootfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A backend that wrote what stands in this package once more would miss what is added
// here. Of macOS, seatbelt has other files; and the tests of backends say on
// their own what they expect.
func TestEachListStandsHereOnly(t *testing.T) {
	whole := slices.Concat(Hidden, HiddenFromRoot, ReadOnlyToRoot)
	parts := []string{"root:x:", "nogroup:x:", "ip6-loopback", "urandom", "/proc/self/fd/0"}
	skipped := []string{"seatbelt", "sandboxtest", "testdata", "rootfs"}
	read := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		read++
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Error(err)
			}
			if slices.Contains(whole, text) || slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) }) {
				t.Errorf("%s: %q stands in package rootfs; use that", files.Position(literal.Pos()), text)
			}
			return true
		})
		return nil
	})
	if err != nil || read < 50 {
		t.Errorf("%d files were read, err %v", read, err)
	}
}
