package repo

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// A limit bounds how much of something one place of the source may have.
type limit struct {
	rule    string
	most    int
	measure func(*Tree) []measure
}

// limits are those that ARCHITECTURE.md names. They serve the reader: where one
// would make the code worse, the table of exceptions there says so.
var limits = []limit{
	{"function lines", 60, functionLines},
	{"file lines", 500, fileLines},
	{"package lines", 2000, packageLines},
	{"methods", 25, typeMethods},
	{"interface methods", 8, interfaceMethods},
	{"exported names", 25, exportedNames},
	{"parameters", 4, parameters},
	{"embedding", 0, embedding},
	{"blocking under a lock", 0, blockingUnderLock},
}

// A measure is what one place has of something.
type measure struct {
	where string // as the table of exceptions names the place
	n     int
	node  ast.Node // where to look; nil: the place itself
	text  string   // what is there, and the way out
}

func (l limit) check(t *Tree) []Finding {
	exceptions, err := readExceptions(t.Texts["ARCHITECTURE.md"])
	if err != nil {
		return []Finding{{"ARCHITECTURE.md", err.Error()}}
	}
	all := l.measure(t)
	var found []Finding
	for _, m := range all {
		most := l.most
		for _, e := range exceptions {
			if e.rule == l.rule && e.where == m.where {
				most = max(most, e.limit)
			}
		}
		if m.n <= most {
			continue
		}
		text := fmt.Sprintf("%s: %d, at most %d", m.text, m.n, most)
		if m.node == nil {
			found = append(found, Finding{m.where, text})
		} else {
			found = append(found, t.at(m.node, "%s", text))
		}
	}
	return found
}

// largest returns what each place has; the most, where it is measured more than
// once, since each operating system has a file of its own.
func largest(all []measure) map[string]int {
	places := map[string]int{}
	for _, m := range all {
		places[m.where] = max(places[m.where], m.n)
	}
	return places
}

// exceptionMark stands in ARCHITECTURE.md above the table of exceptions.
const exceptionMark = "<!-- exceptions -->"

// An exception is a row of the table: a place that may have more of something.
type exception struct {
	rule, where string
	limit       int
}

// readExceptions parses the table. A text without one has no exceptions.
func readExceptions(text string) ([]exception, error) {
	_, table, _ := strings.Cut(text, exceptionMark)
	var all []exception
	for line := range strings.Lines(strings.TrimLeft(table, "\n")) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		row := strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(row, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if cells[0] == "rule" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if len(cells) != 4 || cells[3] == "" {
			return nil, fmt.Errorf("the exception %q does not have four cells, with the reason in the last", row)
		}
		most, err := strconv.Atoi(cells[2])
		if err != nil {
			return nil, fmt.Errorf("the exception %q: the limit is not a number", row)
		}
		all = append(all, exception{cells[0], cells[1], most})
	}
	return all, nil
}

// neededExceptions wants an exception to go when its place meets the rule.
func neededExceptions(t *Tree) []Finding {
	exceptions, err := readExceptions(t.Texts["ARCHITECTURE.md"])
	if err != nil {
		return []Finding{{"ARCHITECTURE.md", err.Error()}}
	}
	var found []Finding
	for _, e := range exceptions {
		i := slices.IndexFunc(limits, func(l limit) bool { return l.rule == e.rule })
		switch {
		case i < 0:
			found = append(found, Finding{"ARCHITECTURE.md", fmt.Sprintf("the exception of %s names a rule that does not exist: %q", e.where, e.rule)})
		case largest(limits[i].measure(t))[e.where] <= limits[i].most:
			found = append(found, Finding{"ARCHITECTURE.md", fmt.Sprintf("%s needs no exception from %q any more: remove the row", e.where, e.rule)})
		}
	}
	return found
}
