package repo

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// programOnly are calls that only a program may make: a library that reads the
// environment or ends the process surprises its importers.
var programOnly = []string{
	"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "syscall.Getenv", "syscall.Environ",
	"os.Exit", "syscall.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln",
	"flag.Parse", "flag.String", "flag.Bool", "flag.Int", "flag.Duration",
}

// programs are packages outside cmd that are a process of their own.
var programs = map[string]string{
	"sandbox/jailinit":                  "the first program in a jail: it hands its environment on and exits as its child did",
	"worker/internal/gitmonitor":        "git's hook in a jail: it reads where git looks, and exits as git's protocol has it",
	"sandbox/slowtest":                  "imported by tests only, and reads how busy a host is that an emulated machine cannot see",
	"sandbox/sandboxtest":               "imported by tests only, and reads which backends they must not skip",
	"sandbox/exectest":                  "imported by tests only, and reads which programs they must not do without",
	"dispatcher/dashboard/browsertest":  "imported by tests only, and reads which browsers they must not skip",
	"dispatcher/forge/forgetest":        "imported by tests only, and reads where GitHub's description of its API is",
	"jobs/jobstest":                     "imported by tests only, and reads which backends they must not skip",
	"worker/agent/internal/adaptertest": "imported by tests only, and reads which agents they must not skip",
	"cmd/penstock":                      "its tests are its user's sessions, run by testscript, which ends the process itself",
}

// takeOver are the packages whose init function is their purpose: it decides
// whether this process is the program that imports them at all.
var takeOver = []string{"sandbox/jailinit", "worker/internal/gitmonitor"}

func onlyPrograms(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		_, own := programs[p.Dir]
		own = own || p.Dir == "cmd" || strings.HasPrefix(p.Dir, "cmd/")
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv == nil && n.Name.Name == "init" && !slices.Contains(takeOver, p.Dir) {
						found = append(found, t.at(n, "init function: whoever imports the package cannot refuse it"))
					}
				case *ast.SelectorExpr:
					name := selector(n)
					if !own && slices.Contains(programOnly, name) {
						found = append(found, t.at(n, "%s outside cmd: take a setting, return an error", name))
					}
				}
			}
		}
	}
	return found
}

func selector(n *ast.SelectorExpr) string {
	if pkg, ok := n.X.(*ast.Ident); ok {
		return pkg.Name + "." + n.Sel.Name
	}
	return ""
}

// silent lists what packages that hold values or are imported alone must not
// use, by the package or, with a trailing slash, by all packages under it.
var silent = map[string][]string{
	"jobs":     {"log", "log/slog", "os", "os/exec", "net", "net/http", "io/fs"},
	"sandbox":  {"log", "log/slog"},
	"sandbox/": {"log", "log/slog"},
}

func silentLibraries(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for where, packages := range silent {
			if p.Dir != where && !(strings.HasSuffix(where, "/") && strings.HasPrefix(p.Dir, where)) {
				continue
			}
			for f := range p.product {
				for _, spec := range f.Imports {
					if imported, err := strconv.Unquote(spec.Path.Value); err == nil && slices.Contains(packages, imported) {
						found = append(found, t.at(spec, "%s may not import %s: it reports by values and errors only", p.Dir, imported))
					}
				}
			}
		}
	}
	return found
}

func contextsInStructs(t *Tree) []Finding {
	var found []Finding
	for _, n := range t.nodes {
		s, ok := n.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range s.Fields.List {
			if isContext(field.Type) {
				found = append(found, t.at(field, "a context in a struct: pass it to the call that it ends"))
			}
		}
	}
	return found
}

// goroutineLeaks wants a package that starts goroutines to look, in its tests,
// for those it did not wait for.
func goroutineLeaks(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		if programs[p.Dir] != "" {
			continue // its goroutines end with the process
		}
		starts := ""
		for f := range p.product {
			for n := range ast.Preorder(f.File) {
				if starts == "" && startsGoroutine(n) {
					starts = fmt.Sprintf("%s:%d", f.Path, t.fset.Position(n.Pos()).Line)
				}
			}
		}
		verifies := slices.ContainsFunc(p.Files, func(f *File) bool {
			return f.Test && strings.Contains(t.Texts[f.Path], "goleak.VerifyTestMain")
		})
		if starts != "" && !verifies {
			found = append(found, Finding{starts, "starts a goroutine, and no test of the package calls goleak.VerifyTestMain"})
		}
	}
	return found
}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr: // errgroup.Group.Go, sync.WaitGroup.Go
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Go" && len(n.Args) == 1
	}
	return false
}
