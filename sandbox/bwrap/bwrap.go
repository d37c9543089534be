// Package bwrap compiles a [sandbox.Spec] for bubblewrap, 0.8 and newer.
//
// The jail sees an allow-list: the system's programs and libraries read-only,
// a few files of /etc, synthetic ones for users and names, sized temporary
// directories, the workspace, the home, and what the Spec mounts. Everything
// else of the host does not exist in it, so nothing has to be masked, and no
// mask can stay behind in the workspace.
//
// It has its own user, mount, process, network, IPC, host name and control
// group namespaces, no privileges to gain, and a filter of system calls.
// bubblewrap's process inside is pid 1: its end is the end of all.
//
// The program inside always has uid 1000, because agents refuse to run as
// root. Outside it is the user that runs this program.
package bwrap

import (
	"context"
	"fmt"
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

// A Backend compiles for the bubblewrap of this host. The zero value is ready.
type Backend struct {
	Path string // of bwrap; "" is looked up in PATH
	Init string // of a program that imports jailinit; "" is this program

	mu       sync.Mutex
	enforced []sandbox.Feature // guarded by mu; nil until Check has succeeded
}

// Name returns "bwrap".
func (b *Backend) Name() string { return "bwrap" }

// Ready returns spec as it is: a jail needs nothing but what Check tries.
func (b *Backend) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

// Descriptors of the compiled command, in the order of its Data.
const (
	argsFD = mechanism.DataFD + iota
	filterFD
	filesFD // the first of the files that the agent sees
)

// Command compiles spec. It reads the layout of the host's system
// directories and resolves symbolic links; it changes and starts nothing.
func (b *Backend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	path, init, err := b.programs()
	if err != nil {
		return nil, err
	}
	h, err := layout.Read(spec, init)
	if err != nil {
		return nil, err
	}
	return compile(spec, path, host{h, seccomp.Native(), eachProcess(spec.Limits), mayEnter()})
}

func (b *Backend) programs() (path, init string, err error) {
	if path = b.Path; path == "" {
		if path, err = exec.LookPath("bwrap"); err != nil {
			return "", "", fmt.Errorf("%w; install the package bubblewrap", err)
		}
	}
	if init = b.Init; init != "" {
		return path, init, nil
	}
	init, err = jailinit.Executable()
	return path, init, err
}

// A host is what compile knows of one.
type host struct {
	layout.Host
	arch  seccomp.Arch
	data  uint64 // memory that one process may ask for; 0: no limit
	enter bool   // Start may enter a jail to cover and show files, which takes a tenth of bubblewrap's time
}

// compile is the pure part of Command.
func compile(spec sandbox.Spec, path string, h host) (*sandbox.Command, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	filter, err := seccomp.Filter(h.arch, seccomp.Options{
		Namespaces: spec.Preset == sandbox.PresetBrowser,
		Trace:      spec.Preset == sandbox.PresetDebug,
	})
	if err != nil {
		return nil, err
	}
	h.enter = h.enter && len(h.Hidden)+len(h.ReadOnly) > 0
	c := mechanism.Contained{Init: initConfig(spec, h)}
	if h.enter {
		c.Cover = h.cover(spec)
	}
	v := &view{files: [][]byte{nil, filter}, without: c.Cover.Directory.Path}
	v.build(spec, h)
	for _, a := range v.args {
		v.files[argsFD-mechanism.DataFD] = append(append(v.files[argsFD-mechanism.DataFD], a...), 0)
	}
	c.Data = v.files
	return &sandbox.Command{
		Path: path,
		// Only this is visible in the host's list of processes.
		Args: []string{"bwrap", "--args", strconv.Itoa(argsFD), "--", jailinit.Path, mechanism.Mark},
		Jail: c, Root: h.Root,
	}, nil
}

func initConfig(spec sandbox.Spec, h host) jailinit.Config {
	return jailinit.Config{
		Args: spec.Args, Env: spec.Env, Dir: spec.Dir, Listen: spec.Listen,
		OpenFiles: uint64(spec.Limits.OpenFiles), FileSize: uint64(spec.Limits.FileSize),
		Processes: uint64(spec.Limits.PIDs), Data: h.data, Writable: layout.Writable(spec), Scoped: true, Dial: spec.Dial,
	}
}

// Explain shows a command for people: what is executed, an option of bubblewrap
// with its arguments on each further line, and what is mounted from outside after that.
func Explain(c *sandbox.Command) string {
	var s strings.Builder
	s.WriteString(c.Path + " = " + strings.Join(c.Args, " "))
	for _, a := range options(c) {
		separator := " "
		if strings.HasPrefix(a, "--") {
			separator = "\n"
		}
		s.WriteString(separator + a)
	}
	cover := contained(c).Cover
	for _, f := range cover.Directory.Files {
		s.WriteString(fmt.Sprintf("\nthen write %04o %s", f.Mode, f.Path))
	}
	for _, m := range cover.Directory.Mounts {
		s.WriteString("\nthen show " + m.Source + " " + m.Target)
	}
	if cover.Devices > 0 {
		s.WriteString(fmt.Sprintf("\nthen make /dev, with %d bytes of /dev/shm", cover.Devices))
	}
	for _, p := range cover.Hidden {
		s.WriteString("\nthen hide " + p)
	}
	for _, p := range cover.ReadOnly {
		s.WriteString("\nthen make read-only " + p)
	}
	return s.String() + "\n"
}

func options(c *sandbox.Command) []string {
	args := string(contained(c).Data[argsFD-mechanism.DataFD])
	return strings.Split(strings.TrimSuffix(args, "\x00"), "\x00")
}

// contained is how every command of this package makes its jail.
func contained(c *sandbox.Command) mechanism.Contained { return c.Jail.(mechanism.Contained) }

// Check makes a jail and runs a program in it.
func (b *Backend) Check(ctx context.Context) ([]sandbox.Feature, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.enforced != nil {
		return b.enforced, nil
	}
	features := features()
	exit, err := sandbox.Run(ctx, trial{b, features}, sandbox.Spec{Args: []string{"true"}}, sandbox.Streams{})
	if err != nil {
		return nil, fmt.Errorf("no jail can be made here: %w", err)
	}
	if !exit.Success() {
		return nil, fmt.Errorf("no jail can be made here: a program in it ended with %v", exit)
	}
	b.enforced = features
	return features, nil
}

// Trusting returns the backend without the trial of Check, for a program that
// makes one jail only: its start tries the same, and fails where that would.
func (b *Backend) Trusting() sandbox.Backend { return trial{b, features()} }

// A trial is a backend that believes in itself.
type trial struct {
	sandbox.Backend
	features []sandbox.Feature
}

func (t trial) Check(context.Context) ([]sandbox.Feature, error) { return t.features, nil }
