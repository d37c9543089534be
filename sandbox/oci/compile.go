package oci

import (
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
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

// Label is the label of the engine's containers; its value is the jail's token.
const Label = "penstock-jail"

// An engine is what compile needs to know of one.
type engine struct {
	name    string // docker, podman, nerdctl
	path    string
	host    string // docker's socket
	runtime string
	init    string
	arch    seccomp.Arch
	uid     int
	gid     int
	// own means that the engine runs without privileges, as this user.
	own       bool
	openFiles uint64 // that this program may open, which an engine without a daemon can give at most
	processes uint64 // likewise
	env       []string
}

// mapped reports whether this program's user is root in the containers, so
// that jailinit has to make it another one.
func (e engine) mapped() bool { return e.uid == 0 || (e.own && e.name != "podman") }

// ids returns the user and group that the agent sees itself as: the runner's own
// where the engine does not make it another one.
func (e engine) ids() (uid, gid int) {
	if e.mapped() {
		return rootfs.AgentID, rootfs.AgentID
	}
	return e.uid, e.gid
}

// command begins a command line of the engine.
func (e engine) command(args ...string) []string {
	line := []string{e.name}
	if e.host != "" {
		line = append(line, "--host", e.host)
	}
	return append(line, args...)
}

// compile is the pure part of Command.
func compile(spec sandbox.Spec, e engine) (*sandbox.Command, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := validateImage(spec.Image); err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	filter, err := seccomp.Filter(e.arch, seccomp.Options{
		Namespaces: spec.Preset == sandbox.PresetBrowser,
		Trace:      spec.Preset == sandbox.PresetDebug,
	})
	if err != nil {
		return nil, err
	}
	v := &view{engine: e, args: e.command("run", "--rm", "--interactive")}
	v.identity()
	v.walls(spec)
	v.limits(spec.Limits)
	v.mounts(spec)
	v.add("--entrypoint", jailinit.Path, spec.Image, mechanism.Mark)
	return &sandbox.Command{
		Path: e.path, Args: v.args, Env: e.env,
		Jail: mechanism.Served{Init: initConfig(spec, e, filter), Shown: v.shown, End: e.end()},
		Root: func() string { return imageID(spec.Image) },
	}, nil
}

// imageID is an image's id as all engines take it; empty: the image is named by a name.
func imageID(image string) string {
	digits := strings.TrimPrefix(image, idPrefix)
	if sum, err := hex.DecodeString(digits); err != nil || len(sum) != sha256.Size {
		return ""
	}
	return idPrefix + digits
}

// idPrefix begins an image's id. Podman leaves it out where it shows one, and understands it.
const idPrefix = "sha256:"

const containerName = "penstock-" + mechanism.Token

// validateImage refuses what the engine would take for an option, or could
// not name. The engine looks at the rest.
func validateImage(image string) error {
	if image == "" {
		return &sandbox.FieldError{Field: "Image", Value: "", Reason: "is needed: the root file system of a container is an image"}
	}
	bad := func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune("\"'\\", c) }
	if strings.HasPrefix(image, "-") || strings.ContainsFunc(image, bad) {
		return &sandbox.FieldError{Field: "Image", Value: image, Reason: "is not the name of an image"}
	}
	return nil
}

func initConfig(spec sandbox.Spec, e engine, filter []byte) jailinit.Config {
	c := jailinit.Config{
		Args: spec.Args, Env: spec.Env, Dir: spec.Dir, Listen: spec.Listen,
		OpenFiles: uint64(spec.Limits.OpenFiles), FileSize: uint64(spec.Limits.FileSize),
		Writable: append(layout.Writable(spec), "/var/tmp", "/dev/mqueue"), Scoped: true, Dial: spec.Dial, Filter: filter,
	}
	if e.mapped() {
		c.User = rootfs.AgentID
	}
	return c
}

// A view collects the engine's options, and what it is shown as files.
type view struct {
	engine
	args  []string
	shown []mechanism.Shown
}

func (v *view) add(args ...string) { v.args = append(v.args, args...) }

// identity sets the container's name and the user that runs in it.
func (v *view) identity() {
	v.add("--name", containerName, "--label", Label+"="+mechanism.Token, "--hostname", "job")
	switch {
	case !v.mapped():
		v.add("--user", fmt.Sprintf("%d:%d", v.uid, v.gid))
	case v.own:
		v.add("--user", "0:0") // which is this user outside
	default:
		v.add("--user", fmt.Sprintf("0:%d", v.gid))
	}
	switch {
	case v.name == "podman" && v.own:
		v.add("--userns", "keep-id")
	case v.name == "docker" && !v.own:
		// A daemon that gives containers other users would give the workspace to them.
		v.add("--userns", "host")
	}
}

// walls: everything that is not a place or a number. The engine's own filter is
// off because it differs between versions, and jailinit applies ours.
func (v *view) walls(spec sandbox.Spec) {
	v.add("--pull", "never", "--log-driver", "none", "--stop-timeout", "1", "--workdir", "/")
	v.add("--read-only", "--cap-drop", "ALL")
	if v.mapped() {
		v.add("--cap-add", "SETFCAP") // without it no process may map root; it ends with jailinit
	}
	v.add("--security-opt", "no-new-privileges", "--security-opt", "seccomp=unconfined")
	if v.name != "nerdctl" {
		// Labels would have to be written to the files of the host.
		v.add("--security-opt", "label=disable", "--no-healthcheck")
	}
	if v.mapped() && v.uid == 0 {
		// Its profile forbids jailinit the mounts by which it hides files of
		// /proc that root could read.
		v.add("--security-opt", "apparmor=unconfined")
	}
	v.add("--ipc", "private", "--cgroupns", "private")
	if spec.Network == sandbox.NetworkFull {
		v.add("--network", "host")
	} else {
		v.add("--network", "none")
	}
	if v.runtime != "" {
		v.add("--runtime", v.runtime)
	}
}

func (v *view) limits(l sandbox.Limits) {
	memory := strconv.FormatInt(l.Memory, 10)
	v.add("--memory", memory, "--memory-swap", memory)
	// jailinit and the threads of its runtime count, but are not the agent's.
	v.add("--pids-limit", strconv.Itoa(l.PIDs+supervisorThreads))
	if l.CPUs > 0 {
		v.add("--cpus", strconv.FormatFloat(l.CPUs, 'f', -1, 64))
	}
	if l.CPUWeight > 0 {
		// An engine's container has 1024 of these, a jail 100 of ours.
		v.add("--cpu-shares", strconv.Itoa(max(2, l.CPUWeight*1024/100)))
	}
	v.add("--ulimit", "core=0:0", "--ulimit", fmt.Sprintf("fsize=%d:%d", l.FileSize, l.FileSize))
	if v.name == "podman" {
		// Its defaults may be more than this program may have itself.
		files := min(uint64(l.OpenFiles), v.openFiles)
		v.add("--ulimit", fmt.Sprintf("nofile=%d:%d", files, files), "--ulimit", fmt.Sprintf("nproc=%d:%d", v.processes, v.processes))
	}
}

const supervisorThreads = 16

// mounts shows what is there, parents before children.
func (v *view) mounts(spec sandbox.Spec) {
	v.add("--shm-size", strconv.FormatInt(spec.Limits.ShmSize, 10))
	v.tmpfs("/tmp", "1777", spec.Limits.TmpSize)
	v.tmpfs("/var/tmp", "1777", spec.Limits.TmpSize)
	v.tmpfs("/run", "0755"+v.owner(), layout.RunSize)
	// It tells of the machine, and no agent needs it.
	v.add("--tmpfs", "/sys:ro,nosuid,nodev,noexec,size=4096,mode=0555"+v.empty())
	v.mount(sandbox.Mount{Source: spec.Home, Target: sandbox.HomePath, Writable: true}, spec.Limits.TmpSize)
	v.mount(sandbox.Mount{Source: spec.Workspace, Target: sandbox.WorkspacePath, Writable: !spec.WorkspaceReadOnly}, spec.Limits.TmpSize)
	mounts := slices.Clone(spec.Mounts)
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int { return cmp.Compare(a.Target, b.Target) })
	for _, m := range mounts {
		v.mount(m, 0)
	}
	v.names(spec)
	for _, f := range spec.Files {
		v.file(f.Path, mechanism.Shown{Data: f.Data, Executable: f.Mode&0o111 != 0})
	}
	v.bind(v.init, jailinit.Path, false)
	v.bind(mechanism.Meet, jailinit.MeetPath, false)
}

// names: the agent's user, and the name of its machine.
func (v *view) names(spec sandbox.Spec) {
	uid, gid := v.ids()
	v.file("/etc/passwd", mechanism.Shown{Data: rootfs.Passwd(uid, gid, sandbox.HomePath)})
	v.file("/etc/group", mechanism.Shown{Data: rootfs.Group(gid)})
	if spec.Network == sandbox.NetworkFull {
		v.add("--add-host", "job:127.0.1.1")
		return
	}
	// The engine's own would reveal the names of the host.
	v.file("/etc/hosts", mechanism.Shown{Data: []byte(rootfs.Hosts)})
	v.file("/etc/resolv.conf", mechanism.Shown{})
}

// mount shows m; without a source, a file system in memory that belongs to the
// agent.
func (v *view) mount(m sandbox.Mount, size int64) {
	if m.Source != "" {
		v.bind(m.Source, m.Target, m.Writable)
		return
	}
	v.tmpfs(m.Target, "0700"+v.owner(), size)
}

// owner gives a file system in memory to the agent. The runtime may take the
// mode of the image's directory instead of ours, but not its owner.
func (v *view) owner() string {
	switch {
	case v.name == "podman":
		return ",U"
	case v.mapped():
		return "" // root's, which the agent is outside
	}
	return fmt.Sprintf(",uid=%d,gid=%d", v.uid, v.gid)
}

func (v *view) tmpfs(path, mode string, size int64) {
	v.add("--tmpfs", fmt.Sprintf("%s:rw,exec,nosuid,nodev,size=%d,mode=%s%s", path, size, mode, v.empty()))
}

// empty keeps podman from filling a file system in memory with what the image
// has there.
func (v *view) empty() string {
	if v.name == "podman" {
		return ",notmpcopyup"
	}
	return ""
}

// file shows contents as a file that no process inside can change.
func (v *view) file(path string, contents mechanism.Shown) {
	v.shown = append(v.shown, contents)
	v.bind(fmt.Sprintf("%s/%d", mechanism.Meet, len(v.shown)-1), path, false)
}

// bind shows a path of the host. The engines read the option as a line of
// comma-separated values, so a comma in a path cannot end it.
func (v *view) bind(source, target string, writable bool) {
	fields := []string{"type=bind", "source=" + source, "target=" + target}
	if !writable {
		fields = append(fields, "readonly")
	}
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(fields) // into memory
	w.Flush()
	v.add("--mount", strings.TrimSuffix(line.String(), "\n"))
}
