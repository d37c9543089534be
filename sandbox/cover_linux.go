package sandbox

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox/internal/cover"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// beginCover makes, next to the jail's view, what the mechanism leaves out of it.
func (j *jail) beginCover() {
	c := cover.Cover{Directory: j.directory(), Hidden: j.command.Hidden, ReadOnly: j.command.ReadOnly}
	if j.command.Devices > 0 {
		c.Devices = cover.Devices{Path: "/dev", Names: rootfs.Devices, Links: rootfs.DeviceLinks, Shared: j.command.Devices}
	}
	if c.Directory.Path != "" || c.Devices.Path != "" || len(c.Hidden)+len(c.ReadOnly) > 0 {
		j.cover = c.Begin()
	}
}

// directory is the command's, with paths relative to it.
func (j *jail) directory() cover.Directory {
	of := j.command.Directory
	d := cover.Directory{Path: of.Path}
	relative := func(p string) string { return strings.TrimPrefix(p, of.Path+"/") }
	for _, f := range of.Files {
		d.Files = append(d.Files, cover.File{Path: relative(f.Path), Data: f.Data, Mode: f.Mode})
	}
	for _, m := range of.Mounts {
		d.Trees = append(d.Trees, cover.Tree{Source: m.Source, Path: relative(m.Target)})
	}
	return d
}

// applyCover hides from the agent what the mechanism has left open, shows it what the
// mechanism has left out, and lets jailinit go on. Nothing of the agent's runs yet.
func (j *jail) applyCover() error {
	if j.cover == nil {
		return nil
	}
	namespace, err := j.mounts()
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := j.cover.Apply(namespace); err != nil {
		return err
	}
	_, err = j.control.Write([]byte(jailinit.CoveredWord))
	return err
}

// endCover lets go of what no jail was there to be shown.
func (j *jail) endCover() {
	if j.cover != nil {
		_ = j.cover.Close()
	}
}

// mounts opens the mount namespace of pid 1 inside.
func (j *jail) mounts() (*os.File, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first < 0 {
		return nil, errors.New("the jail has ended")
	}
	f, err := os.Open("/proc/" + strconv.Itoa(j.firstPID) + "/ns/mnt")
	if err != nil {
		return nil, err
	}
	// While it is alive, no other process has its number.
	if err := unix.PidfdSendSignal(j.first, 0, nil, 0); err != nil {
		f.Close()
		return nil, os.NewSyscallError("the jail's first process", err)
	}
	return f, nil
}
