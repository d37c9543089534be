package systemd

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

// given is where the unit has what the Spec names, one beside the other: were
// they at their targets, the manager would make mount points in them.
const given = "/given/"

// ours are the processes and threads of jailinit, which stay next to the agent's.
const ours = 16

// properties returns the unit's.
func properties(spec sandbox.Spec, h host) []string {
	p := []string{
		"TemporaryFileSystem=/:rw,mode=0755,nr_inodes=16k,size=" + strconv.FormatInt(rootSize(spec, h), 10),
		"MountAPIVFS=yes", "PrivateMounts=yes", "PrivateDevices=yes",
	}
	if h.tools.user == 0 {
		// What jailinit needs to make the view, none of which the agent gets.
		p = append(p, "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SETFCAP")
	} else {
		// Without it the user's manager ignores all that needs mounts.
		p = append(p, "PrivateUsers=yes")
	}
	if spec.Network != sandbox.NetworkFull {
		p = append(p, "PrivateNetwork=yes")
	}
	p = append(p,
		"NoNewPrivileges=yes", "KeyringMode=private", "UMask=0022",
		"KillMode=control-group", "OOMPolicy=continue",
		"TimeoutStopSec="+strconv.FormatInt(spec.Grace.Milliseconds(), 10)+"ms",
	)
	return slices.Concat(p, limits(spec.Limits), binds(spec, h))
}

func limits(l sandbox.Limits) []string {
	p := []string{
		"MemoryMax=" + strconv.FormatInt(l.Memory, 10), "MemorySwapMax=0", "LimitCORE=0",
		"TasksMax=" + strconv.Itoa(l.PIDs+ours),
	}
	if l.CPUs > 0 {
		p = append(p, fmt.Sprintf("CPUQuota=%d%%", max(1, int(math.Round(l.CPUs*100)))))
	}
	if l.CPUWeight > 0 {
		p = append(p, "CPUWeight="+strconv.Itoa(l.CPUWeight))
	}
	return p
}

// binds shows the host's programs where they look for themselves, and what
// the Spec names below given.
func binds(spec sandbox.Spec, h host) []string {
	p := []string{bind("/usr", "/usr", false)}
	for _, l := range h.Links {
		p = append(p, bind(path.Join("/", l.Source), l.Target, false))
	}
	for _, m := range h.Shared {
		p = append(p, bind(m.Source, m.Target, false))
	}
	if h.Workspace != "" {
		p = append(p, bind(h.Workspace, given+"workspace", !spec.WorkspaceReadOnly))
	}
	if h.Home != "" {
		p = append(p, bind(h.Home, given+"home", true))
	}
	for i, m := range h.Mounts {
		p = append(p, bind(m.Source, given+strconv.Itoa(i), m.Writable))
	}
	return append(p, bind(h.Init, jailinit.Path, false), "BindReadOnlyPaths="+mechanism.Meet+":"+jailinit.MeetPath)
}

func bind(source, target string, writable bool) string {
	if writable {
		return "BindPaths=" + quote(source) + ":" + target
	}
	return "BindReadOnlyPaths=" + quote(source) + ":" + target
}

// quote protects a path from being split: systemd.syntax(7). Quotes never get
// here.
func quote(p string) string {
	var s strings.Builder
	for _, c := range []byte(p) {
		if strings.IndexByte(` :\`, c) >= 0 {
			s.WriteByte('\\')
		}
		s.WriteByte(c)
	}
	return s.String()
}

// rootSize is enough for all files, and the mount points.
func rootSize(spec sandbox.Spec, h host) int64 {
	size := int64(4 << 20)
	for _, f := range append(h.Files(spec), spec.Files...) {
		size += int64(len(f.Data)) + 8192
	}
	return size
}

func initConfig(spec sandbox.Spec, h host) (jailinit.Config, error) {
	filter, err := seccomp.Filter(h.arch, seccomp.Options{
		Namespaces: spec.Preset == sandbox.PresetBrowser,
		Trace:      spec.Preset == sandbox.PresetDebug,
	})
	return jailinit.Config{
		Args: spec.Args, Env: spec.Env, Dir: spec.Dir, Listen: spec.Listen,
		OpenFiles: uint64(spec.Limits.OpenFiles), FileSize: uint64(spec.Limits.FileSize),
		// The unit's count, which tells that it was reached, has to be the first.
		Processes: uint64(spec.Limits.PIDs + ours), Writable: layout.Writable(spec), Scoped: true, Dial: spec.Dial,
		View: view(spec, h), Filter: filter,
	}, err
}

// view is what jailinit makes of what the unit has.
func view(spec sandbox.Spec, h host) []jailinit.Mount {
	v := []jailinit.Mount{{Kind: jailinit.KindBind, Source: "/usr", Target: "/usr"}}
	add := func(p jailinit.Mount) { v = append(v, p) }
	for _, l := range h.Links {
		add(jailinit.Mount{Kind: jailinit.KindLink, Source: l.Source, Target: l.Target})
	}
	for _, m := range h.Shared {
		add(jailinit.Mount{Kind: jailinit.KindBind, Source: m.Target, Target: m.Target})
	}
	for _, f := range h.Files(spec) {
		add(jailinit.Mount{Kind: jailinit.KindFile, Target: f.Path, Data: f.Data, Mode: uint32(f.Mode)})
	}
	add(jailinit.Mount{Kind: jailinit.KindProc, Target: "/proc"})
	// The unit's own keyring can be listed there by its owner.
	hidden := append([]string{rootfs.Keys}, h.Hidden...)
	slices.Sort(hidden)
	for _, p := range slices.Compact(hidden) {
		add(jailinit.Mount{Kind: jailinit.KindMask, Target: p})
	}
	for _, p := range h.ReadOnly {
		add(jailinit.Mount{Kind: jailinit.KindFreeze, Target: p})
	}
	add(jailinit.Mount{Kind: jailinit.KindDevices, Target: "/dev", Size: spec.Limits.ShmSize})
	add(jailinit.Mount{Kind: jailinit.KindMemory, Target: "/tmp", Mode: 0o1777, Size: spec.Limits.TmpSize})
	add(jailinit.Mount{Kind: jailinit.KindMemory, Target: "/run", Mode: 0o755, Size: layout.RunSize})
	add(jailinit.Mount{Kind: jailinit.KindLink, Source: "/tmp", Target: "/var/tmp"})
	return append(v, places(spec, h)...)
}

// places shows what the Spec names, parents before children.
func places(spec sandbox.Spec, h host) []jailinit.Mount {
	v := []jailinit.Mount{
		{Kind: jailinit.KindMemory, Target: sandbox.HomePath, Mode: 0o700, Size: spec.Limits.TmpSize},
		{Kind: jailinit.KindMemory, Target: sandbox.WorkspacePath, Mode: 0o755, Size: spec.Limits.TmpSize},
	}
	if h.Home != "" {
		v[0] = jailinit.Mount{Kind: jailinit.KindBind, Source: given + "home", Target: sandbox.HomePath, Writable: true}
	}
	if h.Workspace != "" {
		v[1] = jailinit.Mount{Kind: jailinit.KindBind, Source: given + "workspace", Target: sandbox.WorkspacePath, Writable: !spec.WorkspaceReadOnly}
	}
	var mounts []jailinit.Mount
	for i, m := range h.Mounts {
		mounts = append(mounts, jailinit.Mount{Kind: jailinit.KindBind, Source: given + strconv.Itoa(i), Target: m.Target, Writable: m.Writable})
	}
	slices.SortStableFunc(mounts, func(a, b jailinit.Mount) int { return cmp.Compare(a.Target, b.Target) })
	v = append(v, mounts...)
	for _, f := range spec.Files {
		v = append(v, jailinit.Mount{Kind: jailinit.KindFile, Target: f.Path, Data: f.Data, Mode: uint32(f.Mode)})
	}
	return append(v, jailinit.Mount{Kind: jailinit.KindBind, Source: jailinit.Path, Target: jailinit.Path})
}
