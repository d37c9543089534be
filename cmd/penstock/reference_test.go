package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/manual"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/cli.md and docs/reference/cli")

// TestReferenceOfCommands holds docs/reference/cli.md and the pages below it against the
// program's commands.
func TestReferenceOfCommands(t *testing.T) {
	const dir = "../../docs/reference/"
	pages := manual.Markdown((&app{cfg: cli.Defaults(), format: cli.Table, progress: cli.ProgressAuto}).root(nil))
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		goldentest.Compare(t, dir+name, pages[name], *update)
	}
	there, err := filepath.Glob(dir + "cli/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if _, ok := pages["cli/"+filepath.Base(file)]; ok {
			continue
		}
		if *update {
			err = os.Remove(file)
		}
		if !*update || err != nil {
			t.Errorf("%s describes no command: run make generate (%v)", file, err)
		}
	}
}
