package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// wholeFile lies beside a workspace of which only a part could be stored.
const wholeFile = "whole.json"

// Whole says of a limit that kept a part of the workspace from being collected
// what becomes of the whole.
func (w *Workspace) Whole(ctx context.Context, limit *changes.LimitError) *changes.LimitError {
	whole, now := *limit, time.Now().UTC()
	whole.Dir = w.dir
	// Like [Workspace.Size], of one that is larger than may be collected.
	whole.Bytes, _ = disk.Usage(ctx, disk.UsageLimits{Depth: wholeDepth, Entries: 8 * w.spaces.cfg.Limits.Entries}, w.home)
	whole.Since, whole.Until = now, now.Add(max(0, w.spaces.cfg.Limits.WholeAge))
	return &whole
}

// KeepWhole records that the collected part is stored elsewhere, and that the workspace
// stays for users who need the rest: Close leaves it, and a sweep removes it by
// Limits.WholeAge and Limits.WholeBytes. A user's own directory, and a worktree, stay
// anyway.
func (w *Workspace) KeepWhole(whole *changes.LimitError) error {
	w.contents.saved = true
	if w.worktree != nil {
		w.Keep()
		return nil
	}
	if !w.files.private() {
		return nil // it is the user's own
	}
	data, err := json.Marshal(whole)
	if err == nil {
		err = os.WriteFile(w.path(wholeFile), data, 0o600)
	}
	w.contents.stays = err == nil
	return err
}

// wholeOf reads what KeepWhole has left in a workspace's home; nil if it did not.
func wholeOf(home string) (*changes.LimitError, error) {
	data, err := os.ReadFile(filepath.Join(home, wholeFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var whole changes.LimitError
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err != nil {
		return nil, err
	}
	return &whole, nil
}

// overdue chooses among kept workspaces, by their ids.
func overdue(kept map[string]changes.LimitError, limits Limits, now time.Time) map[string]bool {
	gone := map[string]bool{}
	var total int64
	for id, whole := range kept {
		if now.Sub(whole.Since) > limits.WholeAge {
			gone[id] = true
			continue
		}
		total += whole.Bytes
	}
	for total > max(0, limits.WholeBytes) {
		oldest := ""
		for id, whole := range kept {
			if !gone[id] && (oldest == "" || whole.Since.Before(kept[oldest].Since)) {
				oldest = id
			}
		}
		gone[oldest] = true
		total -= kept[oldest].Bytes
	}
	return gone
}

// wholeDepth is how deep a workspace is measured that may be kept.
const wholeDepth = 1024
