package agentstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agentstore"
)

// npm plays npm: it makes a package as MAKE says, in the directory after --prefix.
const npm = `#!/bin/sh
set -e
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/pkg/lib"; cd "$2/node_modules/pkg"
printf '{"name":"pkg","version":"1.2.3","bin":{"tool":"lib/tool"}}' >package.json
printf '#!/bin/sh\necho ok\n' >lib/tool; chmod +x lib/tool
eval "$MAKE"
`

func request(t *testing.T, script string) agentstore.Request {
	t.Helper()
	program := filepath.Join(t.TempDir(), "npm")
	if err := exectest.WriteFile(program, []byte(npm), 0o755); err != nil {
		t.Fatal(err)
	}
	return agentstore.Request{
		Package: agentstore.Package{Name: "pkg", Program: "tool"}, Version: "1.2.3",
		NPM: program, Env: []string{"PATH=" + os.Getenv("PATH"), "MAKE=" + script}, Step: func(string) {},
	}
}

// A package that is not what it should be is not installed, and nothing of it stays.
func TestPackagesThatAreNotInstalled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ script, want string }{
		"another version":       {`printf '{"version":"9.9.9","bin":{"tool":"lib/tool"}}' >package.json`, `version "9.9.9" of pkg instead of 1.2.3`},
		"no such program":       {`printf '{"version":"1.2.3","bin":{"other":"lib/tool"}}' >package.json`, "no program tool; it has other"},
		"no program":            {`printf '{"version":"1.2.3"}' >package.json`, "has no program"},
		"a program elsewhere":   {`printf '{"version":"1.2.3","bin":{"tool":"../../../../bin/sh"}}' >package.json`, "elsewhere"},
		"a link that leads out": {`ln -s /etc/passwd lib/secret`, "leads out of the package"},
		"a link with many dots": {`ln -s ../../../../../../etc/passwd lib/secret`, "leads out of the package"},
		"a pipe":                {`mkfifo lib/pipe`, "neither a file nor a directory"},
		"npm says why":          {`echo '{"error":{"code":"ETARGET","summary":"no matching version"}}'; exit 1`, "npm: no matching version"},
		"npm says nothing":      {`echo broken >&2; exit 3`, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			s := agentstore.New(root)
			_, _, err := s.Install(t.Context(), request(t, tt.script))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if found := s.Versions("pkg"); len(found) > 0 {
				t.Errorf("installed: %q", found)
			}
			left, err := filepath.Glob(filepath.Join(root, "*"))
			if err != nil || len(left) > 1 { // npm, the directory of packages
				t.Errorf("%q stay, %v", left, err)
			}
		})
	}
	s := agentstore.New(t.TempDir())
	r := request(t, "")
	r.Try = func(context.Context, agentstore.Installed) error { return errors.New("it crashed") }
	if _, _, err := s.Install(t.Context(), r); err == nil || !strings.Contains(err.Error(), "tool of pkg@1.2.3 does not start, so it is not installed: it crashed") || len(s.Versions("pkg")) > 0 {
		t.Errorf("a program that does not start: %v", err)
	}
}

// Whatever changes in a tree is found before the version is used again, and named; the version is not offered then.
func TestChangesOfAVersion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, what string
		change     func(tree string) error
	}{
		"other content": {"node_modules/pkg/lib/tool", "has changed", func(tree string) error {
			return os.WriteFile(filepath.Join(tree, "node_modules/pkg/lib/tool"), []byte("#!/bin/sh\necho no\n"), 0o755)
		}},
		"not executable": {"node_modules/pkg/lib/tool", "has changed", func(tree string) error {
			return os.Chmod(filepath.Join(tree, "node_modules/pkg/lib/tool"), 0o644)
		}},
		"a new file": {"node_modules/pkg/new", "is new", func(tree string) error {
			return os.WriteFile(filepath.Join(tree, "node_modules/pkg/new"), nil, 0o600)
		}},
		"one less": {"node_modules/pkg/package.json", "is not there", func(tree string) error {
			return os.Remove(filepath.Join(tree, "node_modules/pkg/package.json"))
		}},
		"another link": {"bin/tool", "has changed", func(tree string) error {
			link := filepath.Join(tree, "bin/tool")
			return errors.Join(os.Remove(link), os.Symlink("../package.json", link))
		}},
		"the list": {"", "does not have its digest", func(tree string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(tree), "files"), nil, 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := agentstore.New(t.TempDir())
			i, fresh, err := s.Install(t.Context(), request(t, ""))
			if err != nil || !fresh {
				t.Fatalf("fresh %v, %v", fresh, err)
			}
			use, err := s.Use(t.Context(), "pkg", "1.2.3")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Remove("pkg", "1.2.3"); !errors.Is(err, agentstore.ErrInUse) {
				t.Errorf("removed while it is used: %v", err)
			}
			err = use.Close()
			if err == nil {
				err = tt.change(i.Tree())
			}
			if err != nil {
				t.Fatal(err)
			}
			// The list is not read again while the files are as they were.
			err = s.Verify(t.Context(), i)
			if changed, ok := errors.AsType[*agentstore.ChangedError](err); !ok || changed.Path != tt.path || changed.What != tt.what {
				t.Errorf("verified: %v", err)
			}
			if tt.path != "" {
				_, err = s.Use(t.Context(), "pkg", "1.2.3")
				if _, ok := errors.AsType[*agentstore.UseError](err); !ok {
					t.Errorf("used: %v", err)
				}
			}
			if got := s.Versions("pkg"); len(got) > 0 {
				t.Errorf("it is offered still: %q", got)
			}
			if err := s.Remove("pkg", "1.2.3"); err != nil {
				t.Error(err)
			}
			_, fresh, err = s.Install(t.Context(), request(t, ""))
			if got := s.Versions("pkg"); err != nil || !fresh || !slices.Equal(got, []string{"1.2.3"}) {
				t.Errorf("installed anew: %q, fresh %v, %v", got, fresh, err)
			}
		})
	}
}

// What a name of a version means in a path, it never means here.
func TestNamesOfVersions(t *testing.T) {
	t.Parallel()
	s := agentstore.New(t.TempDir())
	for _, version := range []string{"", ".", "..", "../1.2.3", "1.2.3/..", "/etc"} {
		_, err := s.Get("pkg", version)
		if _, ok := errors.AsType[*agentstore.MissingError](err); !ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}
