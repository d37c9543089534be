package workspace

import (
	"context"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Size measures how much space the workspace takes on the host's disk, besides shared
// parts: the blocks of its files, and the number of inodes. An agent may be writing:
// files that come and go meanwhile may or may not be counted. Size stops counting below
// the depth, and above the number, that may be collected.
func (w *Workspace) Size(ctx context.Context) (bytes, inodes int64) {
	dirs := []string{w.home}
	if w.worktree != nil {
		dirs = append(dirs, w.dir)
	}
	limits := w.spaces.cfg.Limits
	return disk.Usage(ctx, disk.UsageLimits{Depth: limits.Depth, Entries: limits.Entries}, dirs...)
}
