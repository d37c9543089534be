// Package none runs a program without a jail, for users and jobs that ask for none.
//
// It enforces nothing about files, network or system calls. It does keep the
// promise about the end: the program has a session of its own and a parent
// that inherits what it leaves behind and kills it, when the program ends and
// when the starter does. Processes that escape even that, by killing the parent, are
// found by their environment. That search reads files of every process of the host, so it
// is left out where the parent has ended all of them and the control group is empty.
//
// Paths inside are paths of the host: the program starts in Spec.Workspace,
// and Mounts and Files have no meaning and are refused.
package none

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// A Backend runs programs without a jail. The zero value is ready.
type Backend struct {
	Init string // of a program that imports jailinit; "" is this program
}

// Name returns "none".
func (b *Backend) Name() string { return "none" }

// Ready returns spec as it is: a program without a jail needs nothing.
func (b *Backend) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

// Command compiles spec. The Spec has to allow the absence of everything
// else, see [Unenforced].
func (b *Backend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	init := b.Init
	if init == "" {
		var err error
		if init, err = jailinit.Executable(); err != nil {
			return nil, err
		}
	}
	return compile(spec, init)
}

func compile(spec sandbox.Spec, init string) (*sandbox.Command, error) {
	switch {
	case len(spec.Mounts) > 0:
		return nil, &sandbox.FieldError{Field: "Mounts", Value: spec.Mounts[0].Target, Reason: "cannot be shown without a jail"}
	case len(spec.Files) > 0:
		return nil, &sandbox.FieldError{Field: "Files", Value: spec.Files[0].Path, Reason: "cannot be shown without a jail"}
	case spec.Workspace == "":
		return nil, &sandbox.FieldError{Field: "Workspace", Value: "", Reason: "is needed without a jail"}
	}
	if err := checkListen(spec.Listen); err != nil {
		return nil, err
	}
	home := spec.Home
	if home == "" {
		home = spec.Workspace
	}
	env := spec.WithDefaults().Env
	if spec.Env == nil {
		env = replace(env, "HOME", home)
	}
	dir := spec.Workspace
	switch {
	case spec.Dir == sandbox.WorkspacePath || spec.Dir == "":
	case strings.HasPrefix(spec.Dir, sandbox.WorkspacePath+"/"):
		dir += strings.TrimPrefix(spec.Dir, sandbox.WorkspacePath)
	default:
		dir = spec.Dir
	}
	limits := spec.WithDefaults().Limits
	config := jailinit.Config{
		Args: spec.Args, Env: env, Dir: dir, Listen: spec.Listen, Dial: spec.Dial,
		OpenFiles: uint64(limits.OpenFiles), FileSize: uint64(limits.FileSize), Data: eachProcess(limits),
	}
	return &sandbox.Command{
		Path: init, Args: []string{jailinit.Path, mechanism.Mark},
		Jail: mechanism.Supervised{Init: config},
	}, nil
}

// checkListen refuses what would open a door of the host, whose network this is.
func checkListen(addresses []string) error {
	for i, l := range addresses {
		at, err := netip.ParseAddrPort(strings.TrimPrefix(l, "udp/"))
		if err != nil || at.Addr().IsUnspecified() || at.Port() < 1024 {
			return &sandbox.FieldError{Field: fmt.Sprintf("Listen[%d]", i), Value: l,
				Reason: "would be a port of the host: without a jail only a loopback address and a port from 1024 on are possible"}
		}
	}
	return nil
}

func replace(env []string, key, value string) []string {
	var out []string
	for _, kv := range env {
		if strings.HasPrefix(kv, key+"=") {
			kv = key + "=" + value
		}
		out = append(out, kv)
	}
	return out
}

// Unenforced lists what no Spec gets from this backend, for [sandbox.Spec.Allow].
func Unenforced() []sandbox.Feature {
	return []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
		sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureLandlock, sandbox.FeatureTemporary,
	}
}

// Check reports what holds without a jail.
func (b *Backend) Check(context.Context) ([]sandbox.Feature, error) { return features(), nil }
