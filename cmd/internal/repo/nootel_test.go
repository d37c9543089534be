package repo

import (
	"path/filepath"
	"strings"
	"testing"
)

// The tag nootel leaves the export of traces out of the program, with all its modules.
func TestNootel(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	modules := []string{"go.opentelemetry.io/", "google.golang.org/grpc", "github.com/grpc-ecosystem/", "github.com/go-logr/", "github.com/cenkalti/backoff"}
	whole := must(t, root, "go", "list", "-deps", "./cmd/penstock")
	without := must(t, root, "go", "list", "-deps", "-tags", "nootel", "./cmd/penstock")
	for _, module := range modules {
		if !strings.Contains(whole, "\n"+module) {
			t.Errorf("the program does not have %s", module)
		}
		if strings.Contains(without, "\n"+module) {
			t.Errorf("the program has %s in spite of the tag", module)
		}
	}
}
