package seatbelt

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files")

var golden = map[string]sandbox.Spec{
	"zero": {},
	"gate": {Workspace: "/Users/u/ws", Home: "/Users/u/home", Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:3128", "[::1]:3129"}},
	"full": {Workspace: "/Users/u/ws", Network: sandbox.NetworkFull, Dir: "/workspace/sub"},
	"nested": {Workspace: "/Users/u/src/ws", WorkspaceReadOnly: true, Mounts: []sandbox.Mount{
		{Source: "/Users/u/src/ws/out/kept", Target: "/Users/u/src/ws/out/kept"}, {Source: "/Users/u/src", Target: "/Users/u/src", Writable: true},
		{Source: "/Users/u/src/ws/out", Target: "/Users/u/src/ws/out", Writable: true},
	}},
}

// named is what readPlaces finds on a host where everything is there.
func named(s sandbox.Spec) hostPaths {
	p := hostPaths{workspace: s.Workspace, home: s.Home}
	if s.Workspace != "" {
		p.named = append(p.named, hostPath{s.Workspace, !s.WorkspaceReadOnly})
	}
	if s.Home != "" {
		p.named = append(p.named, hostPath{s.Home, true})
	}
	for _, m := range s.Mounts {
		p.named = append(p.named, hostPath{m.Source, m.Writable})
	}
	p.named = inOrder(p.named)
	return p
}

func TestProfiles(t *testing.T) {
	for name, spec := range golden {
		spec.Args = []string{"make", "test"}
		c := compile(spec, "/usr/bin/sandbox-exec", named(spec))
		got := []byte(strings.Join(c.Args, "\n") + "\n--\n" + strings.Join(c.Env, "\n") + "\n")
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs, err %v; look at it with: go test ./sandbox/seatbelt -update && git diff", file, err)
		}
	}
}

// rules returns the forms of a profile, one a line.
func rules(t *testing.T, text string) []string {
	t.Helper()
	var forms []string
	depth, begin, quoted := 0, 0, false
	for i, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			if depth++; depth == 1 {
				begin = i
			}
		case c == ')':
			if depth--; depth == 0 {
				forms = append(forms, strings.Join(strings.Fields(text[begin:i+1]), " "))
			}
		}
	}
	if depth != 0 || quoted {
		t.Errorf("a parenthesis or a quotation mark is open at the end of %s", text)
	}
	return forms
}

// What has opened jails of this kind before.
func TestTheProfileKeepsItsPromises(t *testing.T) {
	for name, spec := range golden {
		forms := rules(t, profile(spec, named(spec).named))
		if forms[1] != "(deny default)" {
			t.Errorf("%s: the profile begins with %q", name, forms[:2])
		}
		for _, f := range forms {
			switch {
			case strings.HasPrefix(f, "(allow") && strings.Contains(f, "appleevent"), strings.Contains(f, "(local ip"):
				t.Errorf("%s: %s leads outside", name, f)
			case spec.Network != sandbox.NetworkFull && (strings.Contains(f, "(allow network*") || strings.Contains(f, `"*:`) || strings.Contains(f, `localhost:*`)):
				t.Errorf("%s: %s is a network that was not granted", name, f)
			case spec.Network == sandbox.NetworkNone && strings.Contains(f, "trustd"):
				t.Errorf("%s: %s leads outside", name, f)
			case f == "(allow file-read*)" || f == "(allow file-write*)" || f == "(allow mach-lookup)" || f == "(allow default)":
				t.Errorf("%s: %s allows everything", name, f)
			}
		}
		if last := forms[len(forms)-3:]; !slices.Equal(last, []string{"(deny appleevent-send)", "(deny mach-register)", "(deny lsopen)"}) {
			t.Errorf("%s: the profile ends with %q", name, last)
		}
	}
}

// The last rule that matches decides, so the innermost place has to be last.
func TestInnerPlacesDecide(t *testing.T) {
	spec := golden["nested"]
	p := named(spec)
	writes := func(path string) (allowed bool) {
		for _, f := range rules(t, profile(spec, p.named)) {
			for i, n := range p.named {
				if strings.Contains(f, "file-write*") && strings.Contains(f, `"`+parameter(i)+`"`) && strings.HasPrefix(path+"/", n.path+"/") {
					allowed = strings.HasPrefix(f, "(allow")
				}
			}
		}
		return allowed
	}
	for path, want := range map[string]bool{
		"/Users/u/src/x": true, "/Users/u/src/ws/x": false, "/Users/u/src/ws/out/x": true, "/Users/u/src/ws/out/kept/x": false, "/Users/u/x": false,
	} {
		if got := writes(path); got != want {
			t.Errorf("%s: writable is %v", path, got)
		}
	}
}

func TestWhatCannotBeIsNamed(t *testing.T) {
	for _, c := range []struct {
		spec  sandbox.Spec
		field string
	}{
		{sandbox.Spec{Mounts: []sandbox.Mount{{Source: "/etc", Target: "/opt/x"}}}, "Mounts[0].Target"},
		{sandbox.Spec{Files: []sandbox.File{{Path: "/etc/x"}}}, "Files"},
		{sandbox.Spec{Network: sandbox.NetworkGate, Listen: []string{"udp/127.0.0.1:53"}}, "Listen[0]"},
		{sandbox.Spec{Network: sandbox.NetworkGate, Listen: []string{"0.0.0.0:443"}}, "Listen[0]"},
		{sandbox.Spec{Preset: sandbox.PresetBrowser}, "Preset"},
		{sandbox.Spec{Workspace: "/nowhere"}, "Workspace"},
		{sandbox.Spec{Image: "x"}, "Image"},
	} {
		c.spec.Args = []string{"true"}
		_, err := (&Backend{}).Command(c.spec)
		if e, ok := errors.AsType[*sandbox.FieldError](err); !ok || e.Field != c.field {
			t.Errorf("got %v, want an error of field %s", err, c.field)
		}
	}
}

// FuzzProfile looks for a Spec whose values become rules: the text may depend
// on their number and kind only, and each value has to arrive as what it is.
func FuzzProfile(f *testing.F) {
	f.Add("/Users/u/ws", "/Users/u/a b", "A=b", "127.0.0.1:3128", "true", true)
	f.Add(`/x")(allow default)("`, "/-D", "HOME=/home/agent", "[::1]:1", "-p", false)
	f.Add("/\\\"", "/PRIVATE=/", "TMPDIR=/tmp", "127.0.0.1:65535", "", true)
	f.Fuzz(func(t *testing.T, workspace, mount, env, listen, arg string, writable bool) {
		spec := sandbox.Spec{
			Args: []string{"true", arg}, Env: []string{env}, Workspace: workspace,
			Mounts:  []sandbox.Mount{{Source: mount, Target: mount, Writable: writable}},
			Network: sandbox.NetworkGate, Listen: []string{listen},
		}
		if spec.Validate() != nil || refuse(spec) != nil {
			return
		}
		p := named(spec)
		c := compile(spec, "/usr/bin/sandbox-exec", p)
		plain := profile(spec, []hostPath{{"/a", p.named[0].writable}, {"/b", p.named[1].writable}})
		want := []string{"sandbox-exec", "-D", "PRIVATE=" + sandbox.Private,
			"-D", "PLACE0=" + p.named[0].path, "-D", "PLACE1=" + p.named[1].path,
			"-p", plain, "/bin/sh", "-c", begin, "sh", strconv.Itoa(65536), workspace, "true", arg}
		if !slices.Equal(c.Args, want) {
			t.Errorf("got %q, want %q", c.Args, want)
		}
		if n := strings.Count(plain, "localhost:"); n != 1 {
			t.Errorf("%d rules for one listener in %s", n, plain)
		}
		rules(t, plain)
	})
}

// A jail of Linux and one of macOS refuse the same Specs for the same reasons
// where the reasons are the same.
func TestInvalidSpecsAreInvalidEverywhere(t *testing.T) {
	for _, spec := range []sandbox.Spec{{}, {Args: []string{"x"}, Workspace: "/"}, {Args: []string{"x"}, Env: []string{"="}}} {
		_, here := (&Backend{}).Command(spec)
		_, there := (&bwrap.Backend{Path: "/x", Init: "/x"}).Command(spec)
		if here == nil || there == nil {
			t.Errorf("%+v: got %v and %v, want errors", spec, here, there)
		}
	}
}
