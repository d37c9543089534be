// Package systemd compiles a [sandbox.Spec] to a transient service of systemd,
// 250 and newer: of the system's manager where this program is root, else of
// the user's.
//
//	systemd-run ──bus──▶ manager ──▶ unit: control group, limits, network,
//	                                 devices, a root that holds only what is named
//	                                   └─ jailinit: processes, IPC, users, the exact view
//	                                        └─ agent, uid 1000
//
// Everything that a property can do is a property of the unit: its root is an
// empty file system in memory, into which the host's programs, the workspace
// and the mounts are bound; it has no network but a loopback, no devices of the
// machine, and limits as a whole. What no property gave before systemd 257, a
// process table of its own, and what none gives at all, package jailinit makes
// inside, from [jailinit.Config.View]. The same filter of system calls as under
// bubblewrap is put on the agent there, so the unit needs none.
//
// The manager takes no descriptors from its clients but the standard streams,
// so the rest goes through a rendezvous, and neither a key nor an argument of
// the agent stands in the unit or in a list of processes.
//
// Older versions ignore properties that they cannot apply, and the user's
// manager ignores more of them, without a word. So [Backend.Check] starts a
// unit and looks, from inside and outside, whether each wall stands.
//
// What it cannot do: limits of what the workspace grows by, images. The user's
// manager limits memory, processes and processors only where they are delegated
// to it, which control groups of version 1 never are.
package systemd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

// A Backend compiles for the systemd of this host. The zero value is ready.
type Backend struct {
	Path string // of systemd-run; "" is looked up in PATH, as systemctl always is
	Init string // of a program that imports jailinit; "" is this program

	mu       sync.Mutex
	enforced []sandbox.Feature // guarded by mu; nil until Check has succeeded
}

// Name returns "systemd".
func (b *Backend) Name() string { return "systemd" }

// Ready returns spec as it is: a jail needs nothing but what Check tries.
func (b *Backend) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

// A host is what compile knows of one.
type host struct {
	layout.Host
	arch  seccomp.Arch
	tools tools
}

// tools are the clients of a manager.
type tools struct {
	run, ctl string
	user     int // whose manager it is; 0 is the system's
}

// unit is how a jail is called; the manager gives each name to one unit.
const unit = "penstock-" + mechanism.Token + ".service"

func (t tools) args(name string, args ...string) []string {
	if t.user == 0 {
		return append([]string{name, "--system"}, args...)
	}
	return append([]string{name, "--user"}, args...)
}

func (t tools) env() []string {
	if t.user == 0 {
		return nil
	}
	return []string{"XDG_RUNTIME_DIR=" + runtimeDir(t.user)}
}

func runtimeDir(uid int) string { return "/run/user/" + strconv.Itoa(uid) }

func (t tools) end() [][]string {
	return [][]string{t.args(t.ctl, "kill", "--signal=KILL", unit)}
}

func (b *Backend) tools() (tools, error) {
	t := tools{run: b.Path, user: os.Geteuid()}
	var err error
	if t.run == "" {
		if t.run, err = exec.LookPath("systemd-run"); err != nil {
			return t, fmt.Errorf("%w; install the package systemd", err)
		}
	}
	if t.ctl, err = exec.LookPath("systemctl"); err != nil {
		return t, fmt.Errorf("%w; install the package systemd", err)
	}
	return t, nil
}

// Command compiles spec. It reads the layout of the host's system
// directories and resolves symbolic links; it changes and starts nothing.
func (b *Backend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	h, err := b.read(spec)
	if err != nil {
		return nil, err
	}
	return compile(spec, h)
}

func (b *Backend) read(spec sandbox.Spec) (h host, err error) {
	if h.tools, err = b.tools(); err != nil {
		return h, err
	}
	init := b.Init
	if init == "" {
		if init, err = jailinit.Executable(); err != nil {
			return h, err
		}
	}
	h.arch = seccomp.Native()
	h.Host, err = layout.Read(spec, init)
	return h, err
}

// compile is the pure part of Command.
func compile(spec sandbox.Spec, h host) (*sandbox.Command, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Image != "" {
		return nil, &sandbox.FieldError{Field: "Image", Value: spec.Image, Reason: "needs a backend that has images"}
	}
	if err := h.quotable(); err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	config, err := initConfig(spec, h)
	if err != nil {
		return nil, err
	}
	args := h.tools.args("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
		"--unit="+unit, "--description=a jail of penstock")
	for _, p := range properties(spec, h) {
		args = append(args, "--property="+p)
	}
	return &sandbox.Command{
		Path: h.tools.run,
		// systemd-run looks for the program on the host, which has no jailinit
		// there; and the manager's environment must not be visible inside.
		// More processors would mean more threads, which are counted.
		Args: append(args, "--", "/usr/bin/env", "-i", "GOMAXPROCS=1", jailinit.Path, mechanism.Mark),
		Env:  h.tools.env(),
		Jail: mechanism.Served{Init: config, End: h.tools.end()},
		Root: h.Root,
	}, nil
}

// quotable refuses paths that not every version of the manager reads back as
// they were written: since 257 a unit with quotes in one does not start.
func (h host) quotable() error {
	type place struct{ field, path string }
	places := []place{{"Workspace", h.Workspace}, {"Home", h.Home}, {"Init", h.Init}}
	for _, m := range h.Mounts {
		places = append(places, place{"Mounts", m.Source})
	}
	for _, p := range places {
		if strings.ContainsFunc(p.path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\'' }) {
			return &sandbox.FieldError{Field: p.field, Value: p.path, Reason: "has quotes or control characters, with which not every systemd starts a unit; rename it, or use another backend"}
		}
	}
	return nil
}

// Explain shows a command for people: what is executed, an option on each
// further line, and the view that is made inside.
func Explain(c *sandbox.Command) string {
	return c.Path + " = " + strings.Join(c.Args, "\n") + "\n"
}

var _ sandbox.Keeper = (*Backend)(nil)

// Kept lists the tokens of units that the manager has. Where there is none, it
// has none.
func (b *Backend) Kept(ctx context.Context) ([]string, error) {
	t, err := b.tools()
	if err != nil || t.reachable() != nil {
		return nil, nil
	}
	args := t.args(t.ctl, "list-units", "--all", "--plain", "--no-legend", "--full", "--no-pager", "penstock-*.service")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append([]string{}, t.env()...)
	out, err := cmd.Output()
	if err != nil {
		return nil, said(err)
	}
	return tokens(string(out)), nil
}

// tokens reads the names in a list of units.
func tokens(list string) []string {
	var found []string
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if t, ok := strings.CutPrefix(f[0], "penstock-"); ok {
			found = append(found, strings.TrimSuffix(t, ".service"))
		}
	}
	return found
}

// said adds what a program wrote to why it failed.
func said(err error) error {
	if e, ok := err.(*exec.ExitError); ok && len(e.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(e.Stderr)))
	}
	return err
}

// End returns the commands that end a unit.
func (b *Backend) End() (commands [][]string, env []string) {
	t, err := b.tools()
	if err != nil {
		return nil, nil
	}
	return t.end(), t.env()
}
