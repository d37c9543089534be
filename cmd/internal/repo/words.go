package repo

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// leastPurpose is the length below which a first sentence only repeats the
// package's name.
const leastPurpose = 20

func packageComments(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		if !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test }) {
			continue // only tests: it is never imported
		}
		var comments []string
		for _, f := range p.Files {
			if !f.Test && f.Doc != nil {
				comments = append(comments, f.Doc.Text())
			}
		}
		begin := "Package " + p.Name() + " "
		if p.Name() == "main" {
			begin = "Command " + path.Base(p.Dir) + " "
		}
		switch {
		case len(comments) == 0:
			found = append(found, Finding{p.Dir, "no package comment: begin one with \"// " + begin + "\" and its purpose"})
		case len(comments) > 1:
			found = append(found, Finding{p.Dir, fmt.Sprintf("%d package comments: keep one", len(comments))})
		case !strings.HasPrefix(comments[0], begin):
			found = append(found, Finding{p.Dir, fmt.Sprintf("the package comment begins %.40q: begin with %q", comments[0], begin)})
		case len(firstSentence(comments[0]))-len(begin) < leastPurpose:
			found = append(found, Finding{p.Dir, fmt.Sprintf("the package comment says %q: say the purpose", firstSentence(comments[0]))})
		}
	}
	return found
}

var sentenceEnd = regexp.MustCompile(`[.:](\s|$)`)

func firstSentence(comment string) string {
	comment = strings.Join(strings.Fields(comment), " ")
	if at := sentenceEnd.FindStringIndex(comment); at != nil {
		return comment[:at[0]]
	}
	return comment
}

// refused are names that say what a package contains instead of what it does,
// or that call our own processes by a word that means something else here.
var refused = []string{"task", "runner", "executor", "manager", "handler", "service", "helper", "util", "common", "base", "model", "type"}

func packageNames(t *Tree) []Finding {
	var found []Finding
	for _, p := range t.Packages {
		for _, word := range refused {
			if name := p.Name(); name == word || name == word+"s" {
				found = append(found, Finding{p.Dir, fmt.Sprintf("package %s: name it after what it does", name)})
			}
		}
	}
	return found
}

// openMark is spelled so that this file does not find itself.
var openMark = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

func openEnds(t *Tree) []Finding {
	var found []Finding
	for name, text := range t.Texts {
		for i, line := range strings.Split(text, "\n") {
			if mark := openMark.FindString(line); mark != "" {
				found = append(found, Finding{fmt.Sprintf("%s:%d", name, i+1), mark + ": do it, or open an issue"})
			}
		}
	}
	return found
}

var localReplace = regexp.MustCompile(`(?m)^\s*(?:replace\s+)?\S+(?:\s+v\S+)?\s+=>\s+([./~]\S*|[A-Za-z]:\S*)`)

// moduleFiles refuses replacements by a directory: they hold on one machine, and
// "go install ...@latest" refuses a module that has them.
func moduleFiles(t *Tree) []Finding {
	var found []Finding
	for name, text := range t.Texts {
		if path.Base(name) != "go.mod" {
			continue
		}
		for _, m := range localReplace.FindAllStringSubmatch(text, -1) {
			found = append(found, Finding{name, "replaces a module by the directory " + m[1] + ": require a version"})
		}
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links finds relative links of documents that lead nowhere.
func links(t *Tree) []Finding {
	var found []Finding
	for name, text := range t.Texts {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			if !t.exists(path.Join(path.Dir(name), target)) {
				found = append(found, Finding{name, "links to " + m[1] + ", which does not exist"})
			}
		}
	}
	return found
}
