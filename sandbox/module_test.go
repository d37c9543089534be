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

// The program in testdata/untrusted is another module: it is all that it takes to run
// an untrusted command.
func TestAProgramOfAnotherModule(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	there, program := another(t, "untrusted")
	if lines := bytes.Count(program, []byte("\n")); lines >= 20 {
		t.Errorf("the program has %d lines, and 20 are too many", lines)
	}
	want := "main.go\nexit code 7, error <nil>\n"
	if got := runAnother(t, there, "sh", "-c", "ls main.go; ls "+sources(t)+"; exit 7"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The program in testdata/backend is another module, with a backend of its own for
// each mechanism that needs no service.
func TestABackendOfAnotherModule(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	there, _ := another(t, "backend")
	for _, mechanism := range []string{"contained", "supervised", "direct"} {
		want := mechanism + "\nexit code 7, error <nil>\n"
		if got := runAnother(t, there, mechanism, "echo "+mechanism+"; exit 7"); got != want {
			t.Errorf("%s: got %q, want %q", mechanism, got, want)
		}
	}
}

// sources is the directory of this module.
func sources(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// another builds the module of a directory in testdata, elsewhere.
func another(t *testing.T, module string) (there string, program []byte) {
	t.Helper()
	there = t.TempDir()
	for name, to := range map[string]string{
		"go.mod": "testdata/" + module + "/go.mod", "main.go": "testdata/" + module + "/main.go", "go.sum": "../go.sum",
	} {
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if name == "main.go" {
			program = b
		}
		b = bytes.Replace(b, []byte("=> ../../.."), []byte("=> "+sources(t)), 1)
		if err := os.WriteFile(filepath.Join(there, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goTool(t, there, []string{"GOFLAGS=-mod=mod"}, "build", "-o", "program", ".")
	return there, program
}

func runAnother(t *testing.T, there string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(there, "program"), args...)
	cmd.Dir = there
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return string(out)
}
