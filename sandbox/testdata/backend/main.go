// Backend makes jails with a backend of its own.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/none"
)

// own is a backend for the mechanism of that name.
type own string

func (own) Name() string { return "own" }

func (own) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (own) Check(context.Context) ([]sandbox.Feature, error) { return nil, nil }

func (o own) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	self, err := jailinit.Executable()
	if err != nil {
		return nil, err
	}
	init := jailinit.Config{Args: spec.Args, Env: spec.Env, Dir: "/"}
	switch o {
	case "contained":
		return &sandbox.Command{
			Path: "/usr/bin/bwrap",
			Args: []string{
				"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
				"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
				"--ro-bind", self, jailinit.Path, "--json-status-fd", fmt.Sprint(mechanism.StatusFD), "--", jailinit.Path, mechanism.Mark,
			},
			Jail: mechanism.Contained{Init: init},
		}, nil
	case "supervised":
		return &sandbox.Command{Path: self, Args: []string{jailinit.Path, mechanism.Mark}, Jail: mechanism.Supervised{Init: init}}, nil
	}
	return &sandbox.Command{Path: "/bin/sh", Args: spec.Args, Env: spec.Env}, nil
}

func main() {
	spec := sandbox.Spec{Args: []string{"sh", "-c", os.Args[2]}}
	spec = spec.Allow(none.Unenforced()...).Allow(sandbox.FeatureKill)
	exit, err := sandbox.Run(context.Background(), own(os.Args[1]), spec, sandbox.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Printf("%v, error %v\n", exit, err)
}
