package git

import (
	"bytes"
	"strings"
)

// Ignore holds the ignore files from the top of a tree down to one directory. It
// decides as git does, but reads nothing by itself: the caller walks the tree and
// passes it each .gitignore. The nil value ignores nothing.
type Ignore struct {
	parent *Ignore
	base   string // the directory, with a slash at its end; "" at the top
	rules  []rule
}

type rule struct {
	negated  bool
	dirsOnly bool
	anywhere bool   // the pattern has no slash: it applies to names, not paths
	prefix   string // the beginning of a matching text
	rest     glob
	whole    bool // the prefix is the whole pattern
}

// Enter returns the rules in directory dir, whose .gitignore has the given content. Dir
// has no slash at its end and is "" for the top.
func (g *Ignore) Enter(dir string, content []byte) *Ignore {
	var rules []rule
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		if r, ok := parseRule(string(line)); ok {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return g
	}
	if dir != "" {
		dir += "/"
	}
	return &Ignore{parent: g, base: dir, rules: rules}
}

// Match reports whether the path, relative to the top, is ignored. It assumes
// that no directory above the path is: below an ignored directory everything
// is ignored, whatever the patterns say.
func (g *Ignore) Match(path string, isDir bool) bool {
	for ; g != nil; g = g.parent {
		name := path[len(g.base):]
		for i := len(g.rules) - 1; i >= 0; i-- {
			if r := &g.rules[i]; (isDir || !r.dirsOnly) && r.match(name) {
				return !r.negated
			}
		}
	}
	return false
}

func parseRule(line string) (rule, bool) {
	if line == "" || line[0] == '#' || strings.IndexByte(line, 0) >= 0 {
		return rule{}, false
	}
	line = trimSpaces(strings.TrimSuffix(line, "\r"))
	var r rule
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirsOnly = strings.CutSuffix(line, "/")
	if line == "" {
		return rule{}, false
	}
	r.anywhere = !strings.Contains(line, "/")
	if !r.anywhere {
		line = strings.TrimPrefix(line, "/")
	}
	n := strings.IndexAny(line, `*?[\`)
	if n < 0 {
		r.prefix, r.whole = line, true
		return r, true
	}
	if !r.anywhere {
		r.prefix, line = line[:n], line[n:]
	}
	r.rest = compileGlob(line)
	return r, true
}

func (r *rule) match(name string) bool {
	if r.anywhere {
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	if r.whole {
		return name == r.prefix
	}
	rest, ok := strings.CutPrefix(name, r.prefix)
	return ok && r.rest.match(rest)
}

// trimSpaces removes spaces at the end that no backslash protects.
func trimSpaces(s string) string {
	end := len(s)
	for end > 0 && s[end-1] == ' ' {
		end--
	}
	slashes := 0
	for end-slashes > 0 && s[end-slashes-1] == '\\' {
		slashes++
	}
	if slashes%2 == 1 && end < len(s) {
		end++
	}
	return s[:end]
}
