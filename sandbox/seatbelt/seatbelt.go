// Package seatbelt compiles a [sandbox.Spec] for the sandbox of macOS, by its
// program sandbox-exec. It has not been run on a Mac yet; what it compiles is
// what the golden files show.
//
// The profile begins by refusing everything, and allows what a Spec names.
// No path is a part of its text: paths are parameters. The system has no
// namespaces, so a jail differs from those of Linux:
//
//   - Paths inside are those of the host. A Mount whose Target is not its
//     Source is refused, and so are Files.
//   - Listeners are opened on the loopback of the host, which the jail shares.
//     The profile lets it connect to their ports and to nothing else there;
//     a server in the jail cannot be reached, not even from inside.
//   - A process that starts a session of its own, and whose parent ends, is
//     out of reach of the kill. So is everything when the starter is killed.
//
// So a Spec has to allow the absence of what [Backend.Check] does not find.
package seatbelt

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// A Backend compiles for sandbox-exec. The zero value is ready.
type Backend struct {
	Path string // of sandbox-exec; "" is where macOS has it
}

// Name returns "seatbelt".
func (b *Backend) Name() string { return "seatbelt" }

// Ready returns spec as it is: a jail needs nothing but what Check tries.
func (b *Backend) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

// Command compiles spec. It resolves symbolic links and the case of names on
// the host; it changes and starts nothing.
func (b *Backend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := refuse(spec); err != nil {
		return nil, err
	}
	paths, err := readPaths(spec)
	if err != nil {
		return nil, err
	}
	path := b.Path
	if path == "" {
		path = "/usr/bin/sandbox-exec"
	}
	return compile(spec, path, paths), nil
}

// refuse names what cannot be had without namespaces.
func refuse(spec sandbox.Spec) error {
	refused := func(field, value, reason string) error {
		return &sandbox.FieldError{Field: field, Value: value, Reason: reason}
	}
	switch {
	case len(spec.Files) > 0:
		return refused("Files", spec.Files[0].Path, "cannot be shown on macOS, where paths inside are those of the host")
	case spec.Image != "":
		return refused("Image", spec.Image, "cannot be the root file system on macOS")
	case spec.Dial:
		return refused("Dial", "true", "is not possible on macOS: a server in the jail cannot be reached")
	case len(spec.Lower) > 0:
		return refused("Lower", spec.Lower[0], "cannot be shown on macOS, which has no overlay")
	case spec.Preset == sandbox.PresetDebug || spec.Preset == sandbox.PresetBrowser:
		return refused("Preset", string(spec.Preset), "does not exist on macOS")
	}
	for i, m := range spec.Mounts {
		if m.Target != m.Source {
			return refused(fmt.Sprintf("Mounts[%d].Target", i), m.Target, "has to be the Source on macOS, where paths inside are those of the host")
		}
	}
	for i, l := range spec.Listen {
		ap, err := netip.ParseAddrPort(l)
		if err != nil || !ap.Addr().IsLoopback() {
			return refused(fmt.Sprintf("Listen[%d]", i), l, "is not a TCP port of the loopback, which the jail shares with the host on macOS")
		}
	}
	return nil
}

// A hostPath is a directory or file of the host that a Spec names.
type hostPath struct {
	path     string // resolved, in the case that the file system has
	writable bool
}

// hostPaths are the paths of the host that compile needs. A workspace or home that is
// "" is private: below the directory that Start makes.
type hostPaths struct {
	workspace, home string
	named           []hostPath // parents before what is in them
}

// parameter is the name of a profile's parameter.
func parameter(i int) string { return "PLACE" + strconv.Itoa(i) }

func compile(spec sandbox.Spec, path string, p hostPaths) *sandbox.Command {
	spec = spec.WithDefaults()
	workspace, home := p.workspace, p.home
	if workspace == "" {
		workspace = sandbox.Private + "/workspace"
	}
	if home == "" {
		home = sandbox.Private + "/home"
	}
	dir := spec.Dir
	if rest, ok := strings.CutPrefix(dir, sandbox.WorkspacePath); ok && (rest == "" || rest[0] == '/') {
		dir = workspace + rest
	}
	args := []string{"sandbox-exec", "-D", "PRIVATE=" + sandbox.Private}
	for i, n := range p.named {
		args = append(args, "-D", parameter(i)+"="+n.path)
	}
	args = append(args, "-p", profile(spec, p.named), "/bin/sh", "-c", begin, "sh", strconv.Itoa(spec.Limits.OpenFiles), dir)
	return &sandbox.Command{
		Path: path, Args: append(args, spec.Args...), Env: environment(spec.Env, home),
	}
}

// begin is what runs before the agent. A limit that is higher than the host's
// stays as it is.
const begin = `ulimit -c 0; ulimit -n "$1" 2>/dev/null; mkdir -p "$HOME" "$2" 2>/dev/null; cd "$2" || exit 126; shift 2; exec "$@"`

// environment points the variables that name places inside to those of the host.
func environment(env []string, home string) []string {
	out := slices.Clone(env)
	for i, kv := range out {
		switch key, value, _ := strings.Cut(kv, "="); {
		case key == "HOME" && value == sandbox.HomePath:
			out[i] = "HOME=" + home
		case key == "TMPDIR" && value == "/tmp":
			out[i] = "TMPDIR=" + sandbox.Private
		}
	}
	return out
}

// inOrder sorts places so that parents come before what is in them: the last
// rule of a profile that matches decides.
func inOrder(named []hostPath) []hostPath {
	slices.SortStableFunc(named, func(a, b hostPath) int {
		return strings.Count(filepath.Clean(a.path), "/") - strings.Count(filepath.Clean(b.path), "/")
	})
	return named
}
