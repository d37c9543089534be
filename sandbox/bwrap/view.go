package bwrap

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// A view collects bubblewrap's options and the contents they refer to.
type view struct {
	args    []string
	files   [][]byte // contents of descriptors, those from filesFD on of files inside
	without string   // a directory of which only its place is made; or ""
}

func (v *view) add(args ...string) { v.args = append(v.args, args...) }

// file shows contents as a file that no process inside can change: in the root
// it is read-only with it; elsewhere it needs a mount of its own.
func (v *view) file(path string, mode fs.FileMode, data []byte) {
	if v.leaves(path) {
		return
	}
	option := "--file"
	for _, dir := range []string{sandbox.HomePath, "/tmp", "/run"} {
		if strings.HasPrefix(path, dir+"/") {
			option = "--ro-bind-data"
		}
	}
	v.files = append(v.files, data)
	v.add("--perms", fmt.Sprintf("%04o", mode), option, strconv.Itoa(mechanism.DataFD+len(v.files)-1), path)
}

// leaves reports whether another part of the view shows path.
func (v *view) leaves(path string) bool {
	return v.without != "" && strings.HasPrefix(path, v.without+"/")
}

func (v *view) tmpfs(path, perms string, size int64) {
	v.add("--perms", perms, "--size", strconv.FormatInt(size, 10), "--tmpfs", path)
}

func (v *view) build(spec sandbox.Spec, h host) {
	v.namespaces(spec)
	v.system(spec, h)
	v.mounts(spec, h.Host)
	// The root is a temporary file system: writable, it would be unlimited memory.
	v.add("--remount-ro", "/")
	v.add("--chdir", "/", "--seccomp", strconv.Itoa(filterFD), "--json-status-fd", strconv.Itoa(mechanism.StatusFD))
}

func (v *view) namespaces(spec sandbox.Spec) {
	v.add("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
	if spec.Network != sandbox.NetworkFull {
		v.add("--unshare-net")
	}
	if spec.Preset != sandbox.PresetBrowser {
		v.add("--disable-userns")
	}
	uid := strconv.Itoa(rootfs.AgentID)
	// Where root starts it, bubblewrap would leave the bounding set as it is.
	v.add("--uid", uid, "--gid", uid, "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "job", "--clearenv")
	// These are for jailinit, not for the agent: a Go program begins by looking for
	// the limits of its control group, to start threads that this one does not need.
	v.add("--setenv", "GOMAXPROCS", "1", "--setenv", "GODEBUG", "containermaxprocs=0")
}

func (v *view) system(spec sandbox.Spec, h host) {
	// Parents that an option makes on its own take the permissions of that
	// option, so those with several children are made first.
	for _, dir := range []string{"/etc", "/home", "/jail", "/var"} {
		v.add("--perms", "0755", "--dir", dir)
	}
	v.add("--ro-bind", "/usr", "/usr")
	for _, l := range h.Links {
		v.add("--symlink", l.Source, l.Target)
	}
	for _, m := range h.Shared {
		if !v.leaves(m.Target) {
			v.add("--ro-bind", m.Source, m.Target)
		}
	}
	for _, f := range h.Files(spec) {
		v.file(f.Path, f.Mode, f.Data)
	}
	v.add("--proc", "/proc")
	if !h.enter {
		for _, p := range h.Hidden {
			v.add("--ro-bind", "/dev/null", p)
		}
		for _, p := range h.ReadOnly {
			v.add("--ro-bind", p, p)
		}
	}
	if h.enter {
		v.add("--perms", "0755", "--dir", "/dev")
	} else {
		v.add("--dev", "/dev")
		v.tmpfs("/dev/shm", "1777", spec.Limits.ShmSize)
		v.add("--remount-ro", "/dev") // as the root is
	}
	v.tmpfs("/tmp", "1777", spec.Limits.TmpSize)
	v.tmpfs("/run", "0755", layout.RunSize)
	v.add("--symlink", "/tmp", "/var/tmp")
}

// mounts shows what the Spec names, parents before children.
func (v *view) mounts(spec sandbox.Spec, h layout.Host) {
	home := sandbox.Mount{Source: h.Home, Target: sandbox.HomePath, Writable: true}
	v.mount(home, "0700", spec.Limits.TmpSize)
	workspace := sandbox.Mount{Source: h.Workspace, Target: sandbox.WorkspacePath, Writable: !spec.WorkspaceReadOnly}
	v.mount(workspace, "0755", spec.Limits.TmpSize)
	mounts := slices.Clone(h.Mounts)
	if spec.Upper != "" {
		mounts = append(mounts, sandbox.Mount{Source: spec.UpperSource(), Target: spec.Upper})
	}
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int { return cmp.Compare(a.Target, b.Target) })
	for _, m := range mounts {
		v.mount(m, "", 0)
	}
	for _, f := range spec.Files {
		v.file(f.Path, f.Mode, f.Data)
	}
	v.add("--ro-bind", h.Init, jailinit.Path)
}

// mount mounts m; without a source, a file system in memory with the permissions
// and the size.
func (v *view) mount(m sandbox.Mount, perms string, size int64) {
	switch {
	case m.Source == "":
		v.tmpfs(m.Target, perms, size)
	case m.Writable:
		v.add("--bind", m.Source, m.Target)
	default:
		v.add("--ro-bind", m.Source, m.Target)
	}
}
