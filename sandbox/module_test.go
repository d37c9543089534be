package sandbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

const module = "github.com/penstock-run/penstock"

// goTool runs the go command as it is without the network.
func goTool(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
	cmd.Env = append(cmd.Env, env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// Importing the library brings the standard library and golang.org/x/sys with it,
// on every system. Policy files are YAML, and programs that want them import a
// separate package.
func TestTheLibraryImportsNothingElse(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		env := []string{"GOOS=" + system}
		checked := 0
		list := goTool(t, ".", env, "list", "-f", "{{.ImportPath}}{{range .Deps}} {{.}}{{end}}", "./...")
		for line := range strings.Lines(list) {
			pkg, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
			if pkg == module+"/sandbox/policy" {
				continue
			}
			checked++
			for dep := range strings.FieldsSeq(deps) {
				host, _, _ := strings.Cut(dep, "/") // of the standard library's none has a dot
				own := dep == module+"/sandbox" || strings.HasPrefix(dep, module+"/sandbox/")
				if strings.Contains(host, ".") && !own && !strings.HasPrefix(dep, "golang.org/x/sys/") {
					t.Errorf("%s: %s imports %s", system, pkg, dep)
				}
			}
		}
		if checked < 5 {
			t.Errorf("%s: only %d packages were found", system, checked)
		}
	}
}

// The program in testdata is another module: it is all that it takes to run an
// untrusted command.
func TestAProgramOfAnotherModule(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	for name, to := range map[string]string{
		"go.mod": "testdata/untrusted/go.mod", "main.go": "testdata/untrusted/main.go", "go.sum": "../go.sum",
	} {
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(b, []byte("\n")); name == "main.go" && lines >= 20 {
			t.Errorf("the program has %d lines, and 20 are too many", lines)
		}
		b = bytes.Replace(b, []byte("=> ../../.."), []byte("=> "+dir), 1)
		if err := os.WriteFile(filepath.Join(there, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goTool(t, there, []string{"GOFLAGS=-mod=mod"}, "build", "-o", "untrusted", ".")
	cmd := exec.Command(filepath.Join(there, "untrusted"), "sh", "-c", "ls main.go; ls "+dir+"; exit 7")
	cmd.Dir = there
	out, err := cmd.CombinedOutput()
	if want := "main.go\nexit code 7, error <nil>\n"; err != nil || string(out) != want {
		t.Errorf("got %q, err %v, want %q", out, err, want)
	}
}
