package workspace

import (
	"context"
	"os"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// scratchFiles are the files of a job without a repository.
type scratchFiles struct{ own }

func (*scratchFiles) strategy() Strategy { return "" }

// prepare makes a directory in which all that is written is nef.
func (f *scratchFiles) prepare(context.Context, Request) error {
	f.dir = f.path("workspace")
	f.before = changes.State{Tree: git.EmptyTree, Index: f.path("index")}
	return os.Mkdir(f.dir, 0o755)
}
