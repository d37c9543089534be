package workspace

import (
	"context"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Size measures what the workspace takes on the disk of the host, beside what
// it shares with others: the blocks of its files, and how many inodes there
// are. An agent may be at work: what comes and goes meanwhile is counted or
// not. A tree that is deeper or larger than what may be collected is not
// counted to its end.
func (w *Workspace) Size(ctx context.Context) (bytes, inodes int64) {
	dirs := []string{w.home}
	if w.worktree != nil {
		dirs = append(dirs, w.dir)
	}
	limits := w.spaces.cfg.Limits
	return disk.Usage(ctx, disk.UsageLimits{Depth: limits.Depth, Entries: limits.Entries}, dirs...)
}
