// Package diskspace says how much room a disk has, and what workspaces take of it.
package diskspace

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/jobs"
)

// A Reserve is what must be free on a disk for a worker to claim jobs. Where
// neither bytes nor percent are given it is 5 percent, of bytes and of inodes,
// and of a large disk not more than 1 GiB and 50,000 inodes.
type Reserve struct {
	Dir     string  // a directory of the disk; empty: it is not looked at
	Bytes   int64   // with the inodes of the zero value; less than 0 reserves nothing
	Percent float64 // of bytes and of inodes
}

// ParseReserve reads a size, as "2GiB", a part of the disk, as "5%", "0" for
// nothing, or "" for the zero value.
func ParseReserve(text string) (Reserve, error) {
	if text == "" {
		return Reserve{}, nil
	}
	var r Reserve
	var err error
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		r.Percent, err = strconv.ParseFloat(percent, 64)
		if err != nil || !(r.Percent >= 0 && r.Percent < 100) { // no NaN either
			return Reserve{}, fmt.Errorf("%q is not a percentage from 0%% to below 100%%", text)
		}
	} else {
		var bytes jobs.Bytes
		if bytes, err = jobs.ParseBytes(text); err != nil {
			return Reserve{}, err
		}
		r.Bytes = int64(bytes)
	}
	if r.Bytes == 0 && r.Percent == 0 {
		r.Bytes = -1
	}
	return r, nil
}

// Disk is the free space of a disk, and the reserved part of it.
type Disk struct {
	Dir           string
	Free, Reserve Room
}

// Room is a part of a disk.
type Room struct{ Bytes, Inodes uint64 }

// The maximum of the default reserve.
const (
	reserveBytes   = 1 << 30
	reserveInodes  = 50_000
	reservePercent = 5
)

// Look measures how much an ordinary user may still write.
func (r Reserve) Look() (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.Dir, &st); err != nil {
		return Disk{}, fmt.Errorf("free space of %s: %w", r.Dir, err)
	}
	block := uint64(st.Bsize)
	d := Disk{Dir: r.Dir, Free: Room{Bytes: uint64(st.Bavail) * block, Inodes: st.Ffree}}
	if st.Files == 0 { // a file system without a table of inodes has no limit of them
		d.Free.Inodes = 1 << 40
	}
	part := func(of uint64, percent float64) uint64 { return uint64(float64(of) * percent / 100) }
	all := uint64(st.Blocks) * block
	switch {
	case r.Bytes < 0:
	case r.Percent > 0:
		d.Reserve = Room{Bytes: part(all, r.Percent), Inodes: part(st.Files, r.Percent)}
	default:
		d.Reserve = Room{Bytes: min(part(all, reservePercent), reserveBytes), Inodes: min(part(st.Files, reservePercent), reserveInodes)}
		if r.Bytes > 0 {
			d.Reserve.Bytes = uint64(r.Bytes)
		}
	}
	return d, nil
}

// Low says what is short, if anything is.
func (d Disk) Low() error { return d.below(d.Reserve) }

// StillLow wants a quarter more than Low: a worker that claims as soon as one
// file was removed would stop again with the next one.
func (d Disk) StillLow() error {
	return d.below(Room{Bytes: d.Reserve.Bytes / 4 * 5, Inodes: d.Reserve.Inodes / 4 * 5})
}

func (d Disk) below(want Room) error {
	switch {
	case d.Free.Bytes < want.Bytes:
		return fmt.Errorf("%d MiB free on the disk of %s, and %d are needed", d.Free.Bytes>>20, d.Dir, want.Bytes>>20)
	case d.Free.Inodes < want.Inodes:
		return fmt.Errorf("%d inodes free on the disk of %s, and %d are needed", d.Free.Inodes, d.Dir, want.Inodes)
	}
	return nil
}
