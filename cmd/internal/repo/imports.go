package repo

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// row is what the map in ARCHITECTURE.md says of one package.
type row struct {
	pkg     string
	imports []string // patterns of our own packages
	tests   []string // the same, for test files only
	modules []string // short names of other modules
}

// mapMark stands in ARCHITECTURE.md above the table.
const mapMark = "<!-- map -->"

// readMap parses the table of the architecture document.
func readMap(text string) ([]row, error) {
	_, table, ok := strings.Cut(text, mapMark)
	if !ok {
		return nil, fmt.Errorf("no %q above the table of packages", mapMark)
	}
	var rows []row
	for line := range strings.Lines(strings.TrimLeft(table, "\n")) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			return nil, fmt.Errorf("the row %q has %d cells, want 4", strings.TrimSpace(line), len(cells))
		}
		pkg := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if pkg == "package" || strings.HasPrefix(pkg, "---") {
			continue
		}
		own, tests, _ := strings.Cut(cells[2], "; tests:")
		rows = append(rows, row{pkg, words(own), words(tests), words(cells[3])})
	}
	return rows, nil
}

func words(cell string) []string {
	var out []string
	for word := range strings.SplitSeq(cell, ",") {
		if word = strings.Trim(strings.TrimSpace(word), "`"); word != "" && word != "—" {
			out = append(out, word)
		}
	}
	return out
}

func imports(t *Tree) []Finding {
	rows, err := readMap(t.Texts["ARCHITECTURE.md"])
	if err != nil {
		return []Finding{{"ARCHITECTURE.md", err.Error()}}
	}
	var found []Finding
	for _, p := range t.Packages {
		i := slices.IndexFunc(rows, func(r row) bool { return r.pkg == p.Dir })
		if i < 0 {
			found = append(found, Finding{p.Dir, "is not in the map: add a row to the table in ARCHITECTURE.md"})
			continue
		}
		for _, f := range p.Files {
			found = append(found, t.fileImports(rows, rows[i], f)...)
		}
	}
	return found
}

func (t *Tree) fileImports(rows []row, r row, f *File) []Finding {
	var found []Finding
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			found = append(found, t.at(spec, "import %s: %v", spec.Path.Value, err))
			continue
		}
		own, isOwn := strings.CutPrefix(imported, t.Module+"/")
		switch {
		case isOwn:
			if own != r.pkg && !mayImport(rows, r, own, f.Test) {
				found = append(found, t.at(spec, "%s may not import %s: see the map in ARCHITECTURE.md", r.pkg, own))
			}
		case strings.Contains(strings.Split(imported, "/")[0], "."):
			if name := moduleName(imported); !slices.Contains(r.modules, name) && !f.Test {
				found = append(found, t.at(spec, "%s may not import %s: its row in ARCHITECTURE.md does not name %s", r.pkg, imported, name))
			}
		}
	}
	return found
}

// mayImport reports whether the row allows the import. Tests may reach what
// the package itself reaches, since they look at the effects of the whole.
func mayImport(rows []row, r row, own string, test bool) bool {
	if !test {
		return matches(r.imports, own)
	}
	if strings.HasSuffix(path.Base(own), "test") {
		return true
	}
	visited := map[string]bool{r.pkg: true} // rows may name each other by pattern
	for queue := []row{r}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if matches(at.imports, own) || matches(at.tests, own) {
			return true
		}
		for _, below := range rows {
			if !visited[below.pkg] && matches(at.imports, below.pkg) {
				visited[below.pkg] = true
				queue = append(queue, below)
			}
		}
	}
	return false
}

func matches(patterns []string, own string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "everything" {
			return true
		}
		if tree, ok := strings.CutSuffix(p, "/*"); ok {
			// A package of test tools is imported by name or not at all.
			return (own == tree || strings.HasPrefix(own, tree+"/")) && !strings.HasSuffix(own, "test")
		}
		return p == own
	})
}

var version = regexp.MustCompile(`^v\d+$`)

// moduleName shortens an import path to the word the map uses: "x/sys" for
// golang.org/x/sys/unix, "nats.go" for github.com/nats-io/nats.go/jetstream.
func moduleName(imported string) string {
	parts := strings.Split(imported, "/")
	if parts[0] == "golang.org" {
		return strings.Join(parts[1:min(3, len(parts))], "/")
	}
	repository := 1 // go.yaml.in/yaml, go.uber.org/goleak
	if parts[0] == "github.com" {
		repository = 2
	}
	if len(parts) <= repository || version.MatchString(parts[repository]) {
		return imported
	}
	return parts[repository]
}
