package oci

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

var update = flag.Bool("update", false, "write the golden files")

// testEngines are an engine with a daemon for a user and for root, a daemon of
// the user's own, and engines without one.
var testEngines = map[string]engine{
	"docker":          {name: "docker", path: "/usr/bin/docker", host: "unix:///var/run/docker.sock", uid: 1001, gid: 1002},
	"docker-root":     {name: "docker", path: "/usr/bin/docker", host: "unix:///var/run/docker.sock", runtime: "runsc"},
	"docker-rootless": {name: "docker", path: "/usr/bin/docker", host: "unix:///run/user/1001/docker.sock", uid: 1001, gid: 1002, own: true},
	"podman":          {name: "podman", path: "/usr/bin/podman", uid: 1001, gid: 1002, own: true, openFiles: 4096, processes: 2048},
	"podman-root":     {name: "podman", path: "/usr/bin/podman", openFiles: 1 << 20, processes: 1 << 15},
	"nerdctl":         {name: "nerdctl", path: "/usr/local/bin/nerdctl", uid: 1001, gid: 1002, own: true},
}

var testSpecs = map[string]sandbox.Spec{
	"zero": {},
	"all": {
		Workspace: "/data/w,s", WorkspaceReadOnly: true, Home: "/data/home", Network: sandbox.NetworkGate,
		Listen: []string{"127.0.0.1:3128"},
		Mounts: []sandbox.Mount{{Source: "/data/cache", Target: "/opt/cache", Writable: true}, {Source: "/data/other", Target: "/opt"}},
		Files:  []sandbox.File{{Path: "/etc/gitconfig", Data: []byte("[user]\n")}, {Path: "/opt/own", Data: []byte("#!/bin/sh\n"), Mode: 0o755}},
		Limits: sandbox.Limits{Memory: 1 << 30, CPUs: 1.5, CPUWeight: 50, PIDs: 64, TmpSize: 1 << 20, ShmSize: 2 << 20},
	},
	"full": {Network: sandbox.NetworkFull, Preset: sandbox.PresetBrowser},
}

func TestCommandLines(t *testing.T) {
	for engineName, e := range testEngines {
		e.init, e.arch = "/opt/penstock", seccomp.AMD64
		for specName, spec := range testSpecs {
			if specName != "zero" && engineName != "docker" {
				continue
			}
			spec.Args, spec.Image, spec.Env = []string{"true"}, "registry.example/agent:1", []string{"SECRET=s3cret"}
			c, err := compile(spec, e)
			if err != nil {
				t.Fatal(err)
			}
			served := c.Jail.(mechanism.Served)
			if text := strings.Join(append(slices.Concat(served.End...), c.Args...), " "); strings.Contains(text, "s3cret") || strings.Contains(text, "true") {
				t.Errorf("%s: the environment or the agent's arguments are visible: %s", engineName, text)
			}
			compare(t, engineName+"-"+specName, listing(c))
		}
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal([]byte(got), want) {
		t.Errorf("%s differs, err %v; look at it with: go test ./sandbox/oci -update && git diff", file, err)
	}
}

func listing(c *sandbox.Command) string {
	s := c.Path
	for _, a := range c.Args[1:] {
		separator := " "
		if strings.HasPrefix(a, "--") {
			separator = "\n"
		}
		s += separator + a
	}
	s += "\n"
	served := c.Jail.(mechanism.Served)
	for i, shown := range served.Shown {
		word := "shown"
		if shown.Executable {
			word = "executable"
		}
		s += fmt.Sprintf("%s %d: %q\n", word, i, shown.Data)
	}
	for _, e := range served.End {
		s += "end: " + strings.Join(e, " ") + "\n"
	}
	return s
}

func TestSpecsThatCannotBeContainers(t *testing.T) {
	e := testEngines["docker"]
	e.init, e.arch = "/opt/penstock", seccomp.AMD64
	for _, c := range []struct {
		spec  sandbox.Spec
		field string
	}{
		{sandbox.Spec{}, "Image"},
		{sandbox.Spec{Image: "--privileged"}, "Image"},
		{sandbox.Spec{Image: "a b"}, "Image"},
		{sandbox.Spec{Image: "a", Workspace: "relative"}, "Workspace"},
	} {
		c.spec.Args = []string{"true"}
		_, err := compile(c.spec, e)
		if f, ok := err.(*sandbox.FieldError); !ok || f.Field != c.field {
			t.Errorf("got %v, want an error of field %s", err, c.field)
		}
	}
}

// FuzzCompile looks for a Spec whose values become options of the engine, or
// end a mount early.
func FuzzCompile(f *testing.F) {
	f.Add("/data/ws", "/opt/x", "/etc/y", "alpine:3", "true")
	f.Add("/a,target=/etc", `/opt/"x`, "/etc/,readonly=false", "-v", "--privileged")
	f.Add("/a/../b", "/opt/\n", "//etc", "a\x00b", "-x")
	e := testEngines["docker"]
	e.init, e.arch = "/opt/penstock", seccomp.AMD64
	f.Fuzz(func(t *testing.T, source, target, file, image, arg string) {
		spec := sandbox.Spec{
			Args: []string{"true", arg}, Workspace: source, Image: image,
			Mounts: []sandbox.Mount{{Source: source, Target: target}},
			Files:  []sandbox.File{{Path: file, Data: []byte(arg)}},
		}
		c, err := compile(spec, e)
		if err != nil {
			return
		}
		reference := sandbox.Spec{
			Args: []string{"true"}, Workspace: "/w", Image: "i",
			Mounts: []sandbox.Mount{{Source: "/w", Target: "/opt/t"}}, Files: []sandbox.File{{Path: "/etc/f"}},
		}
		want, err := compile(reference, e)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Args) != len(want.Args) {
			t.Fatalf("%q became %d arguments instead of %d", c.Args, len(c.Args), len(want.Args))
		}
		for i, a := range c.Args {
			if strings.HasPrefix(want.Args[i], "-") && a != want.Args[i] {
				t.Errorf("argument %d is %q instead of %q", i, a, want.Args[i])
			}
			if i == 0 || c.Args[i-1] != "--mount" {
				continue
			}
			fields, err := csv.NewReader(strings.NewReader(a)).Read()
			if err != nil || len(fields) > 4 || fields[0] != "type=bind" || !strings.HasPrefix(fields[1], "source=") || !strings.HasPrefix(fields[2], "target=/") {
				t.Errorf("mount %q is read as %q, err %v", a, fields, err)
			}
		}
	})
}
