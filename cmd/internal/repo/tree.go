package repo

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Tree is the source of one module.
type Tree struct {
	Module   string
	Packages []*Package
	// Texts holds every text file a person wrote, Go included, by path.
	Texts map[string]string

	paths map[string]bool // every file and directory
	fset  *token.FileSet
}

// Package is one directory with Go files.
type Package struct {
	Dir   string // relative to the module, with slashes
	Files []*File
}

// File is one Go file.
type File struct {
	*ast.File
	Path  string
	Test  bool
	Lines int
}

// Finding is one thing wrong, and the way out.
type Finding struct {
	Where string
	What  string
}

func (f Finding) String() string { return f.Where + ": " + f.What }

// textNames are the endings of files that people write.
var textNames = []string{".go", ".md", ".sh", ".awk", ".txt", ".yml", ".yaml", ".mod", ".json", ".toml", "Makefile", ".ci/run"}

// Load reads the module at the root of fsys. Directories whose name begins with
// "_" or ".", testdata, and modules within the module are not part of it; the
// texts of the last are.
func Load(fsys fs.FS) (*Tree, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	t := &Tree{Texts: map[string]string{}, paths: map[string]bool{}, fset: token.NewFileSet()}
	for line := range strings.Lines(string(mod)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			t.Module = strings.TrimSpace(name)
		}
	}
	byDir := map[string]*Package{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		t.paths[name] = true
		if d.IsDir() {
			if skipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.ContainsFunc(textNames, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		return t.read(fsys, name, byDir)
	})
	if err != nil {
		return nil, err
	}
	for _, p := range byDir {
		t.Packages = append(t.Packages, p)
	}
	slices.SortFunc(t.Packages, func(a, b *Package) int { return cmp.Compare(a.Dir, b.Dir) })
	return t, nil
}

func skipped(dir string) bool {
	base := path.Base(dir)
	switch {
	case dir == "." || dir == ".ci" || dir == ".github":
		return false
	case dir == "bin" || dir == "demo-run" || dir == "penstock-results": // see .gitignore
		return true
	}
	return base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

func (t *Tree) read(fsys fs.FS, name string, byDir map[string]*Package) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	t.Texts[name] = string(text)
	dir := path.Dir(name)
	if !strings.HasSuffix(name, ".go") || dir == "deploy" || strings.HasPrefix(dir, "deploy/") {
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if byDir[dir] == nil {
		byDir[dir] = &Package{Dir: dir}
	}
	byDir[dir].Files = append(byDir[dir].Files, &File{
		File:  syntax,
		Path:  name,
		Test:  strings.HasSuffix(name, "_test.go"),
		Lines: strings.Count(string(text), "\n"),
	})
	return nil
}

// exists reports whether the tree has the file or directory.
func (t *Tree) exists(name string) bool { return t.paths[name] }

// Name is the package's name, which the name of a test package extends.
func (p *Package) Name() string { return strings.TrimSuffix(p.Files[0].Name.Name, "_test") }

// product yields the files that are neither tests nor generated.
func (p *Package) product(yield func(*File) bool) {
	for _, f := range p.Files {
		if !f.Test && !ast.IsGenerated(f.File) && !yield(f) {
			return
		}
	}
}

// at makes a finding at a place of the source.
func (t *Tree) at(node ast.Node, format string, args ...any) Finding {
	p := t.fset.Position(node.Pos())
	return Finding{fmt.Sprintf("%s:%d", p.Filename, p.Line), fmt.Sprintf(format, args...)}
}
