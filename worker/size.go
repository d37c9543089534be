package worker

import (
	"context"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/diskspace"
	"github.com/penstock-run/penstock/worker/workspace"
)

// A Reserve is what must be free on a disk for a worker to claim jobs. Where
// neither bytes nor percent are given it is 5 percent, of bytes and of inodes,
// and of a large disk not more than 1 GiB and 50,000 inodes.
type Reserve = diskspace.Reserve

// ParseReserve reads a size, as "2GiB", a part of the disk, as "5%", "0" for
// nothing, or "" for the zero value.
func ParseReserve(text string) (Reserve, error) { return diskspace.ParseReserve(text) }

// Disk is the free space of a disk, and the reserved part of it.
type Disk = diskspace.Disk

// watchSize measures the workspace again and again until the function that it
// returns is called, which has the last result recorded.
func (a *attempt) watchSize(ctx context.Context, space *workspace.Workspace) (stop func()) {
	w := diskspace.Watch{Name: a.of.name(), Size: space.Size, Tally: a.tally, Put: a.of.events.Put, Report: func(sum jobs.DiskUse) {
		if a.of.cfg.Hooks.Workspaces != nil {
			a.of.cfg.Hooks.Workspaces(sum.Bytes, sum.Inodes)
		}
	}}
	end := w.Begin(ctx)
	return func() { a.of.out.Result.SetDisk(end()) }
}
