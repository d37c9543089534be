package capsule

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Files name the files of conversations in a home.
type Files struct {
	// Paths name the files. Those whose names end in ".jsonl" are lines of JSON.
	Paths []Pattern `yaml:"files,omitempty" json:"files,omitempty"`
	// Except name those of them that are left out.
	Except []Pattern `yaml:"except,omitempty" json:"except,omitempty"`
}

// Known reports whether any files are named.
func (f Files) Known() bool { return len(f.Paths) > 0 }

// A Pattern names files, relative to the home: "*" in an element stands for any part of one
// name, "**" as the last element for all that is below, "{id}" for the conversation's own id,
// and "{id8}" for the first eight characters of it.
type Pattern string

// below is the element of a pattern for everything in a directory, however deep.
const below = "**"

// maxPatterns bounds how many patterns name files, or leave some out.
const maxPatterns = 16

var goodID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`) })

// checkID checks the id of a conversation, which the agent has chosen.
func checkID(id string) error {
	if !goodID().MatchString(id) {
		return fmt.Errorf("conversation %.140q: its name may have up to 128 of A-Z, a-z, 0-9, '_' and '-'", id)
	}
	return nil
}

// elements are those of the pattern for one conversation.
func (p Pattern) elements(id string) []string {
	return strings.Split(strings.NewReplacer("{id}", id, "{id8}", id[:min(8, len(id))]).Replace(string(p)), "/")
}

// fits reports whether a name is one of the files of a conversation.
func (f Files) fits(id, name string) bool {
	named := func(p Pattern) bool { return p.fits(id, name) }
	return slices.ContainsFunc(f.Paths, named) && !slices.ContainsFunc(f.Except, named)
}

// without reports whether all that is in a directory is left out.
func (f Files) without(id, dir string) bool {
	return slices.ContainsFunc(f.Except, func(p Pattern) bool {
		return path.Base(string(p)) == below && p.fits(id, dir+"/any")
	})
}

func (p Pattern) fits(id, name string) bool {
	names := strings.Split(name, "/")
	if checkID(id) != nil || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	elements := p.elements(id)
	if last := len(elements) - 1; elements[last] == below && len(names) > last {
		elements, names = elements[:last], names[:last]
	}
	if len(elements) != len(names) {
		return false
	}
	for i, e := range elements {
		if ok, err := path.Match(e, names[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

// A PatternError reports a pattern that names no files of a conversation.
type PatternError struct {
	Field string // "files[0]"
	Why   string
}

func (e *PatternError) Error() string { return e.Field + ": " + e.Why }

// Validate reports the first pattern that is wrong, as a [*PatternError].
func (f Files) Validate() error {
	if len(f.Paths) == 0 {
		if len(f.Except) > 0 {
			return &PatternError{"files", "is missing: it names the files from which except leaves some out"}
		}
		return nil
	}
	for _, list := range []struct {
		field    string
		patterns []Pattern
	}{{"files", f.Paths}, {"except", f.Except}} {
		if len(list.patterns) > maxPatterns {
			return &PatternError{list.field, fmt.Sprintf("has %d patterns; %d are allowed", len(list.patterns), maxPatterns)}
		}
		for i, p := range list.patterns {
			if err := p.validate(); err != nil {
				return &PatternError{fmt.Sprintf("%s[%d]", list.field, i), fmt.Sprintf("%.200q %v", string(p), err)}
			}
		}
	}
	return nil
}

func (p Pattern) validate() error {
	elements := p.elements("id")
	switch name := strings.Join(elements, "/"); {
	case path.IsAbs(name) || strings.HasPrefix(name, "~"):
		return errors.New("is not relative to the agent's home: leave out what stands before it")
	case slices.Contains(elements, ".."):
		return errors.New(`has "..", and so may lead out of the agent's home`)
	case !fs.ValidPath(name) || name == "." || len(p) > 1024:
		return errors.New(`is no path of a file: it is empty, too long, not UTF-8, or has an empty or "." element`)
	case strings.ContainsAny(name, "\\[]?{}\x00"):
		return errors.New("has a character that is not allowed: besides *, ** and {id} or {id8} a pattern has names only")
	}
	for i, e := range elements {
		if strings.Contains(e, below) && (e != below || i < len(elements)-1) {
			return errors.New("has ** in another place than alone at its end")
		}
	}
	if strings.Trim(elements[0], "*") == "" {
		return errors.New("begins with *, and so may take all of the agent's home: name a directory")
	}
	return nil
}
