package systemd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

var update = flag.Bool("update", false, "write the golden files")

// testHost is a host with a merged /usr.
func testHost(s sandbox.Spec, user int) host {
	return host{layout.Host{
		Init: "/opt/penstock", Workspace: s.Workspace, Home: s.Home, Mounts: s.Mounts,
		Links:  []sandbox.Mount{{Source: "usr/bin", Target: "/bin"}, {Source: "usr/lib", Target: "/lib"}},
		Shared: []sandbox.Mount{{Source: "/etc/ssl", Target: "/etc/ssl"}},
		Copied: []sandbox.File{{Path: "/etc/nsswitch.conf", Data: []byte("hosts: files dns\n")}},
		Hidden: []string{"/proc/cmdline"}, ReadOnly: []string{"/proc/sys"},
		Hosts: []byte("192.0.2.1 printer\n"), Resolv: []byte("nameserver 192.0.2.53\n"),
	}, seccomp.AMD64, tools{"/usr/bin/systemd-run", "/usr/bin/systemctl", user}}
}

var golden = map[string]struct {
	user int
	spec sandbox.Spec
}{
	"zero": {},
	"user": {user: 1234},
	"workspace": {spec: sandbox.Spec{Workspace: "/data/ws", Home: "/data/a home", Mounts: []sandbox.Mount{
		{Source: "/opt/node", Target: "/opt/node"}, {Source: "/data/cache", Target: "/opt/cache", Writable: true},
		{Source: "/data/other", Target: "/opt"},
	}}},
	"readonly": {spec: sandbox.Spec{Workspace: "/data/ws", WorkspaceReadOnly: true, Preset: sandbox.PresetOffline}},
	"full":     {spec: sandbox.Spec{Network: sandbox.NetworkFull}},
	"limits": {spec: sandbox.Spec{
		Files:  []sandbox.File{{Path: "/etc/own", Data: []byte("x"), Mode: 0o755}},
		Limits: sandbox.Limits{Memory: 1 << 30, CPUs: 1.5, PIDs: 64, CPUWeight: 50, TmpSize: 1 << 20, ShmSize: 2 << 20},
	}},
}

func TestCommandLines(t *testing.T) {
	for name, g := range golden {
		g.spec.Args = []string{"true"}
		c, err := compile(g.spec, testHost(g.spec, g.user))
		if err != nil {
			t.Fatal(err)
		}
		config, err := initConfig(g.spec.WithDefaults(), testHost(g.spec, g.user))
		if err != nil {
			t.Fatal(err)
		}
		got := []byte(listing(c, config))
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs, err %v; look at it with: go test ./sandbox/systemd -update && git diff", file, err)
		}
	}
}

// listing is what people see, and the view with it.
func listing(c *sandbox.Command, config jailinit.Config) string {
	s := Explain(c)
	for _, e := range c.Env {
		s += "env: " + e + "\n"
	}
	for _, e := range c.Jail.(mechanism.Served).End {
		s += "end: " + strings.Join(e, " ") + "\n"
	}
	for _, p := range config.View {
		s += fmt.Sprintf("%-7s %s", p.Kind, p.Target)
		if p.Source != "" {
			s += " from " + p.Source
		}
		if p.Kind == jailinit.KindFile {
			s += fmt.Sprintf(" %q", p.Data)
		}
		if p.Mode != 0 {
			s += fmt.Sprintf(" mode %04o", p.Mode)
		}
		if p.Size != 0 {
			s += fmt.Sprintf(" size %d", p.Size)
		}
		if p.Writable {
			s += " writable"
		}
		s += "\n"
	}
	return s
}

// The unit contains no key, and nothing that an agent is given.
func TestNothingSecretInTheUnit(t *testing.T) {
	const secret = "t0ken-5a17"
	spec := sandbox.Spec{
		Args: []string{"agent", secret}, Env: []string{"TOKEN=" + secret}, Dir: "/workspace/" + secret,
		Files: []sandbox.File{{Path: "/etc/" + secret, Data: []byte(secret)}},
	}
	c, err := compile(spec, testHost(spec, 0))
	if err != nil {
		t.Fatal(err)
	}
	served := c.Jail.(mechanism.Served)
	if all := fmt.Sprint(c.Args, c.Env, served.End, served.Shown); strings.Contains(all, secret) {
		t.Errorf("the secret is in %s", all)
	}
	if !strings.Contains(fmt.Sprint(served.Init), secret) {
		t.Error("the agent never gets it")
	}
}

func TestPathsThatNotEverySystemdReadsAreRefused(t *testing.T) {
	for _, odd := range []string{`/data/q"uote`, "/data/it's", "/data/tab\tb", "/data/new\nline", "/data/\x7f"} {
		for field, spec := range map[string]sandbox.Spec{
			"Workspace": {Workspace: odd}, "Home": {Home: odd}, "Mounts": {Mounts: []sandbox.Mount{{Source: odd, Target: "/opt/x"}}},
		} {
			spec.Args = []string{"true"}
			_, err := compile(spec, testHost(spec, 0))
			if e, ok := errors.AsType[*sandbox.FieldError](err); !ok || !strings.HasPrefix(e.Field, field) {
				t.Errorf("%s %q: got %v", field, odd, err)
			}
		}
	}
}

// FuzzCompile looks for a Spec whose values become properties of the unit: for
// every accepted one there are as many arguments as for a harmless one, and each
// place is the one that was meant.
func FuzzCompile(f *testing.F) {
	f.Add("/data/ws", "/opt/x", "A=b", "true")
	f.Add("/data/w s:/etc/shadow", "/opt/--property", "=", "")
	f.Add(`/data/"q\ :rbind`, "/opt/%h", "K=\x00", "-x")
	f.Fuzz(func(t *testing.T, workspace, target, env, arg string) {
		spec := sandbox.Spec{
			Args: []string{"true", arg}, Env: []string{env}, Workspace: workspace,
			Mounts: []sandbox.Mount{{Source: workspace, Target: target}},
		}
		c, err := compile(spec, testHost(spec, 0))
		if err != nil {
			return
		}
		plain := sandbox.Spec{Args: []string{"true"}, Workspace: "/w", Mounts: []sandbox.Mount{{Source: "/w", Target: "/opt/t"}}}
		want, err := compile(plain, testHost(plain, 0))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Args) != len(want.Args) {
			t.Fatalf("%d arguments instead of %d: %q", len(c.Args), len(want.Args), c.Args)
		}
		for _, p := range []string{"--property=BindPaths=" + quote(workspace) + ":/given/workspace", "--property=BindReadOnlyPaths=" + quote(workspace) + ":/given/0"} {
			if !slices.Contains(c.Args, p) {
				t.Errorf("%q is not among %q", p, c.Args)
			}
		}
		if got := split(quote(workspace) + ":/given/0"); len(got) != 2 || got[0] != workspace {
			t.Errorf("%q reads as %q", workspace, got)
		}
	})
}

// split takes a value of BindPaths= apart as the manager does.
func split(s string) []string {
	words, escaped := []string{""}, false
	for _, c := range []byte(s) {
		last := &words[len(words)-1]
		switch {
		case escaped:
			*last, escaped = *last+string([]byte{c}), false
		case c == '\\':
			escaped = true
		case strings.IndexByte(": \t", c) >= 0:
			words = append(words, "")
		default:
			*last += string([]byte{c})
		}
	}
	return words
}
