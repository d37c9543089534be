package diskspace

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestTally(t *testing.T) {
	t.Parallel()
	all := NewTally()
	all.Set("a", &jobs.DiskUse{Bytes: 5, Inodes: 1})
	all.Set("b", &jobs.DiskUse{Bytes: 7, Inodes: 2})
	if got := all.Set("a", &jobs.DiskUse{Bytes: 1, Inodes: 1}); got != (jobs.DiskUse{Bytes: 8, Inodes: 3}) {
		t.Errorf("together %+v", got)
	}
	if got := all.Set("b", nil); got != (jobs.DiskUse{Bytes: 1, Inodes: 1}) {
		t.Errorf("without the second %+v", got)
	}
}
