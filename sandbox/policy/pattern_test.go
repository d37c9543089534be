package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// What an agent can write must not decide what the next jail sees.
func TestLinksDoNotLeadOut(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"secret", "ws/real", "home", "cfg", "abs/sub"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"ws/out": root + "/secret", "ws/in": "real", "cfg/x": "../secret", "home/x": root + "/secret", "abs/sub/x": "../../secret", "exact": "secret",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	where := Where{Home: root + "/home", Dir: root + "/ws"}
	for text, want := range map[string]string{
		"./out": "", "/x": "", "~/x": "", "/" + root + "/abs/sub/*": "", "./*": "",
		"./in": "/ws/real", "/" + root + "/exact": "/secret", "/" + root + "/ws/i?": "/ws/real",
	} {
		p, err := Parse(root+"/cfg/policy.yaml", []byte(`write: ["`+text+`"]`))
		if err != nil {
			t.Fatal(err)
		}
		spec, err := p.Apply(sandbox.Spec{Args: []string{"true"}}, where)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "/secret")):
			t.Errorf("%s: got %v and %v, want an error that says where it leads", text, spec.Mounts, err)
		case want != "" && (err != nil || len(spec.Mounts) != 1 || spec.Mounts[0].Source != root+want):
			t.Errorf("%s: got %v and %v, want %s", text, spec.Mounts, err, want)
		}
	}
}

// In what comes from no file, the second form is absolute.
func TestFlagsAreAbsolute(t *testing.T) {
	spec, err := Policy{Read: []Pattern{"/usr/bin", "//usr/lib"}}.Apply(sandbox.Spec{Args: []string{"true"}}, Where{Home: "/", Dir: "/"})
	if err != nil || len(spec.Mounts) != 2 || spec.Mounts[0].Target != "/usr/bin" || spec.Mounts[1].Target != "/usr/lib" {
		t.Errorf("got %v, err %v", spec.Mounts, err)
	}
	_, err = Policy{Read: []Pattern{"/usr/nothing"}}.Apply(sandbox.Spec{Args: []string{"true"}}, Where{})
	if err == nil || !strings.HasPrefix(err.Error(), "read[0]: ") {
		t.Errorf("got %v, want an error that names no file", err)
	}
}

func TestLists(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"read/in", "write", "readable"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Parse(root+"/p.yaml", []byte("read: [/read]\nwrite: [/write]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path     string
		writable bool
		want     bool
	}{
		{"read", false, true}, {"read/in", false, true}, {"read", true, false}, {"write", true, true}, {"write", false, true},
		{"readable", false, false}, {".", false, false},
	} {
		m := sandbox.Mount{Source: filepath.Join(root, c.path), Writable: c.writable}
		if got, err := p.Lists(m, Where{}); err != nil || got != c.want {
			t.Errorf("%+v: got %v, err %v", c, got, err)
		}
	}
}
