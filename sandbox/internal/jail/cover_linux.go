package jail

import (
	"strings"

	"github.com/penstock-run/penstock/sandbox/internal/cover"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// covering is what has to be mounted, with the paths of a directory relative to it.
func covering(m mechanism.Cover) cover.Cover {
	c := cover.Cover{Hidden: m.Hidden, ReadOnly: m.ReadOnly, Directory: cover.Directory{Path: m.Directory.Path}}
	relative := func(p string) string { return strings.TrimPrefix(p, m.Directory.Path+"/") }
	for _, f := range m.Directory.Files {
		c.Directory.Files = append(c.Directory.Files, cover.File{Path: relative(f.Path), Data: f.Data, Mode: f.Mode})
	}
	for _, t := range m.Directory.Mounts {
		c.Directory.Trees = append(c.Directory.Trees, cover.Tree{Source: t.Source, Path: relative(t.Target)})
	}
	if m.Devices > 0 {
		c.Devices = cover.Devices{Path: "/dev", Names: rootfs.Devices, Links: rootfs.DeviceLinks, Shared: m.Devices}
	}
	return c
}

// applyCover hides from the agent what the mechanism has left open, shows it what
// the mechanism has left out, and lets jailinit go on. Nothing of the agent's runs yet.
func (j *contained) applyCover() error {
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
	_, err = j.link.conn.Write([]byte(jailinit.CoveredWord))
	return err
}

// closeCover gives up what no jail was there to be shown.
func (j *contained) closeCover() {
	if j.cover != nil {
		_ = j.cover.Close()
	}
}
