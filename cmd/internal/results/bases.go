package results

import (
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
)

// Pin keeps the commits that the items begin from, for this run and for all
// that go on with the batch.
func (d *Dir) Pin(bases []Base) error {
	m := d.Manifest()
	m.Bases = bases
	if err := d.writeManifest(m); err != nil {
		return fmt.Errorf("write %s: %w", d.files.path(manifestName), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.manifest.Bases = bases
	return nil
}

// maxBases bounds what a report says of them.
const maxBases = 20

// baseLines say what the items began from: the commits that were pinned, and
// how many others there were.
func (s *summary) baseLines(results map[string]jobs.Result) (lines []string) {
	pinned := map[string]bool{}
	for _, b := range s.Manifest.Bases {
		pinned[b.Commit] = true
		line := b.Commit + " of " + b.Repo
		if b.Ref != "" {
			line += ", " + b.Ref
		}
		if b.Uncommitted > 0 {
			line += fmt.Sprintf(", with %d uncommitted files", b.Uncommitted)
		}
		lines = append(lines, line)
	}
	others := map[string]bool{}
	for _, r := range results {
		if r.BaseCommit != "" && !pinned[r.BaseCommit] {
			others[r.BaseCommit] = true
		}
	}
	switch {
	case len(others) == 1:
		for commit := range others {
			lines = append(lines, commit)
		}
	case len(others) > 1:
		lines = append(lines, fmt.Sprintf("%d commits: results.jsonl names each", len(others)))
	}
	if more := len(lines) - maxBases; more > 0 {
		lines = append(slices.Clone(lines[:maxBases]), fmt.Sprintf("and %d more", more))
	}
	return lines
}
