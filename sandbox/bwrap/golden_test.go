package bwrap

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

var update = flag.Bool("update", false, "write the golden files")

// testHost is a host with a merged /usr and a runner that is not root.
func testHost(s sandbox.Spec) host {
	return host{layout.Host{
		Init: "/opt/penstock", Workspace: s.Workspace, Home: s.Home, Mounts: s.Mounts,
		Links:  []sandbox.Mount{{Source: "usr/bin", Target: "/bin"}, {Source: "usr/lib", Target: "/lib"}},
		Shared: []sandbox.Mount{{Source: "/etc/ssl", Target: "/etc/ssl"}},
		Copied: []sandbox.File{{Path: "/etc/nsswitch.conf", Data: []byte("hosts: files dns\n")}},
		Hidden: []string{"/proc/cmdline"},
		Hosts:  []byte("192.0.2.1 printer\n"), Resolv: []byte("nameserver 192.0.2.53\n"),
	}, seccomp.AMD64, 0, false}
}

var golden = map[string]sandbox.Spec{
	"zero": {},
	"workspace": {Workspace: "/data/ws", Home: "/data/home", Mounts: []sandbox.Mount{
		{Source: "/opt/node", Target: "/opt/node"}, {Source: "/data/cache", Target: "/opt/cache", Writable: true},
		{Source: "/data/other", Target: "/opt"},
	}},
	"readonly": {Workspace: "/data/ws", WorkspaceReadOnly: true, Preset: sandbox.PresetOffline},
	"browser":  {Preset: sandbox.PresetBrowser},
	"full":     {Network: sandbox.NetworkFull},
	"files": {Files: []sandbox.File{
		{Path: "/etc/gitconfig", Data: []byte("[user]\n")}, {Path: "/home/agent/.run", Data: []byte("x"), Mode: 0o755},
	}, Limits: sandbox.Limits{TmpSize: 1 << 20, ShmSize: 2 << 20}},
}

// rootHost is the same with a runner that is root, and may enter its jails.
func rootHost(s sandbox.Spec) host {
	h := testHost(s)
	h.Hidden, h.ReadOnly, h.enter = append(h.Hidden, "/proc/keys"), []string{"/proc/sys"}, true
	return h
}

func TestCommandLines(t *testing.T) {
	for name, spec := range golden {
		compare(t, name, spec, testHost)
	}
	compare(t, "root", golden["zero"], rootHost)
	compare(t, "root-files", golden["files"], rootHost)
	// What a Spec mounts into /etc, or would hide there, is bubblewrap's affair.
	compare(t, "root-mount", sandbox.Spec{Mounts: []sandbox.Mount{{Source: "/data/etc", Target: "/etc/own"}}}, rootHost)
	compare(t, "root-below", sandbox.Spec{Files: []sandbox.File{{Path: "/etc/ssl/own", Data: []byte("x")}}}, rootHost)
}

func compare(t *testing.T, name string, spec sandbox.Spec, on func(sandbox.Spec) host) {
	t.Helper()
	spec.Args = []string{"true"}
	c, err := compile(spec, "/usr/bin/bwrap", on(spec))
	if err != nil {
		t.Fatal(err)
	}
	got := []byte(listing(c))
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs, err %v; look at it with: go test ./sandbox/bwrap -update && git diff", file, err)
	}
}

// listing is what people see, and the contents with it.
func listing(c *sandbox.Command) string {
	s := Explain(c)
	for i, d := range contained(c).Data[filesFD-mechanism.DataFD:] {
		s += fmt.Sprintf("%d: %q\n", filesFD+i, d)
	}
	return s
}

// FuzzCompile looks for a Spec whose values become options of bubblewrap: for
// every accepted one, each value has to arrive as the argument it was meant to be.
func FuzzCompile(f *testing.F) {
	f.Add("/data/ws", "/opt/x", "/etc/y", "A=b", "127.0.0.1:3128", "true")
	f.Add("--bind", "/opt/--bind", "/etc/\x00--bind", "=", "[::1]:80", "")
	f.Add("/a/../b", "/opt/\n", "//etc", "K=\x00", "0.0.0.0:1", "-x")
	f.Fuzz(func(t *testing.T, workspace, target, file, env, listen, arg string) {
		spec := sandbox.Spec{
			Args: []string{"true", arg}, Env: []string{env}, Workspace: workspace,
			Mounts:  []sandbox.Mount{{Source: workspace, Target: target}},
			Files:   []sandbox.File{{Path: file, Data: []byte(arg)}},
			Network: sandbox.NetworkGate, Listen: []string{listen},
		}
		c, err := compile(spec, "/usr/bin/bwrap", testHost(spec))
		if err != nil {
			return
		}
		reference := spec
		reference.Workspace, reference.Mounts, reference.Files = "/w", []sandbox.Mount{{Source: "/w", Target: "/opt/t"}}, []sandbox.File{{Path: "/etc/f"}}
		reference.Env, reference.Listen, reference.Args = []string{"A=b"}, []string{"127.0.0.1:3128"}, []string{"true"}
		want, err := compile(reference, "/usr/bin/bwrap", testHost(reference))
		if err != nil {
			t.Fatal(err)
		}
		got := options(c)
		if len(got) != len(options(want)) {
			t.Fatalf("%q became %d arguments instead of %d", got, len(got), len(options(want)))
		}
		// Each value is the one argument that it was meant to be, and all
		// others are what they are for harmless values.
		meant := map[string]string{"/w": workspace, "/opt/t": target, "/etc/f": file}
		for i, w := range options(want) {
			if v, ok := meant[w]; ok {
				w = v
			}
			if got[i] != w && !(w == "--file" && got[i] == "--ro-bind-data") {
				t.Errorf("argument %d is %q instead of %q in %q", i, got[i], w, got)
			}
		}
		for _, value := range []string{workspace, target, file} {
			if !strings.HasPrefix(value, "/") || strings.ContainsAny(value, "\x00\n") {
				t.Errorf("%q was accepted as a path", value)
			}
		}
		for _, d := range options(c) {
			if n, err := strconv.Atoi(d); err == nil && n >= mechanism.DataFD+len(contained(c).Data) && n < 100 {
				t.Errorf("descriptor %d does not exist", n)
			}
		}
	})
}
