// Package oci makes jails with a container engine: docker, podman or nerdctl.
//
//	Spec ──Command──▶ docker run … /jail/init ══ socket ══▶ the runner
//	                       │ the engine: image, namespaces, limits
//	                       ▼ jailinit: listeners, filter, second wall
//	                     agent
//
// The root is the read-only file system of Spec.Image, and programs come from
// it; of the host it shows what the Spec names. The engine makes namespaces and
// limits. The first program inside is ours, statically linked, and does the
// rest as in every other jail: the same filter of system calls, the same
// second wall, listeners handed out by descriptor, so that no bridge network is
// needed, and an end of everything when the runner ends. What the agent gets,
// its environment too, travels over a socket and never through the engine's
// command line or its records.
//
// The program inside has the user of this program outside, so files in the
// workspace belong to it. Where that user is root, or is root to an engine
// without privileges, jailinit gives it a user namespace in which it has uid
// 1000 and no capability; it never is root inside.
//
// The engine, not this program, owns the container. Should this program be
// killed, jailinit sees its socket end and ends everything inside; what the
// engine keeps of it is found by its label, see [Backend.Leftovers].
package oci

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// A Backend compiles for a container engine of this host. The zero value is
// ready.
type Backend struct {
	Engine  string // "docker", "podman" or "nerdctl"; "" is the first of them that is found
	Path    string // of the engine's program; "" is looked up in PATH
	Host    string // docker's daemon, "unix:///run/docker.sock"; "" is the user's own where there is one, else the system's
	Runtime string // that the engine starts containers with: "runsc", "kata"; "" is its default
	Init    string // of a static program that imports package jailinit; "" is this program

	mu       sync.Mutex
	enforced []sandbox.Feature // guarded by mu; nil until Check has succeeded
	tried    map[string]bool   // guarded by mu; images and programs that work together
}

// Name returns "oci".
func (b *Backend) Name() string { return "oci" }

// Command compiles spec. Its Root is known if Ready has returned the Spec. It resolves symbolic links of the host; it changes
// and starts nothing.
func (b *Backend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	e, err := b.engine()
	if err != nil {
		return nil, err
	}
	if e.init, err = b.init(); err != nil {
		return nil, err
	}
	if spec, err = resolve(spec); err != nil {
		return nil, err
	}
	return compile(spec, e)
}

func (b *Backend) init() (string, error) {
	path := b.Init
	if path == "" {
		var err error
		if path, err = jailinit.Executable(); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(path)
}

// resolve replaces the host's paths in spec by those without symbolic links:
// an engine that follows them itself does so as root.
func resolve(spec sandbox.Spec) (sandbox.Spec, error) {
	one := func(field string, path *string) error {
		if *path == "" {
			return nil
		}
		p, err := filepath.EvalSymlinks(*path)
		if err != nil {
			return &sandbox.FieldError{Field: field, Value: *path, Reason: "cannot be used: " + err.Error()}
		}
		*path = p
		return nil
	}
	spec.Mounts = append([]sandbox.Mount(nil), spec.Mounts...)
	if err := one("Workspace", &spec.Workspace); err != nil {
		return spec, err
	}
	if err := one("Home", &spec.Home); err != nil {
		return spec, err
	}
	for i := range spec.Mounts {
		if err := one(fmt.Sprintf("Mounts[%d].Source", i), &spec.Mounts[i].Source); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// A trial is a backend that believes in itself.
type trial struct {
	sandbox.Backend
	features []sandbox.Feature
}

func (t trial) Check(context.Context) ([]sandbox.Feature, error) { return t.features, nil }
