package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// A Pattern names files of the host, in one of four ways:
//
//	//opt/node         an absolute path
//	/tools             relative to the directory of the policy file
//	~/.cache/go-build  relative to the home of the user
//	./vendor           relative to the current directory
//
// The elements may hold *, ? and [a-z], which do not match a slash. A pattern
// without them has to exist. In a policy that was read from no file, such as
// one made of a command's flags, the second form is absolute, too.
//
// A match may be a symbolic link, but not one that leads out of
// the place that the pattern names: a program that can write there, such as an
// agent in its workspace, would decide what the next jail sees. Only an absolute
// path without wildcards may lead anywhere.
type Pattern string

// Where says what patterns are relative to.
type Where struct {
	Home string
	Dir  string // the current directory

	file string // the policy's
}

var errPattern = errors.New("is none of //absolute, /relative-to-this-file, ~/in-the-home, ./in-the-current-directory")

func (p Pattern) validate() error {
	_, err := p.path(Where{Home: "/h", Dir: "/d", file: "/f/p"})
	if err == nil {
		if _, err = filepath.Match(string(p), ""); err != nil {
			err = fmt.Errorf("%q: %w", string(p), err)
		}
	}
	return err
}

// path returns the absolute path, which may hold wildcards.
func (p Pattern) path(w Where) (string, error) {
	path, _, err := p.split(w)
	return path, err
}

// split returns the absolute path, and the directory that it is relative to.
func (p Pattern) split(w Where) (path, base string, err error) {
	rest := ""
	switch s := string(p); {
	case strings.HasPrefix(s, "//"):
		base, rest = "/", s[2:]
	case strings.HasPrefix(s, "/"):
		if base, rest = "/", s[1:]; w.file != "" {
			base = filepath.Dir(w.file)
		}
	case strings.HasPrefix(s, "~/"):
		base, rest = w.Home, s[2:]
	case strings.HasPrefix(s, "./"):
		base, rest = w.Dir, s[2:]
	default:
		return "", "", fmt.Errorf("%q %w", s, errPattern)
	}
	switch {
	case !filepath.IsAbs(base):
		return "", "", fmt.Errorf("%q: it is relative, and its base is not known", string(p))
	case strings.ContainsAny(rest, "\x00\n\r"):
		return "", "", fmt.Errorf("%q contains a NUL or a line break", string(p))
	case filepath.Clean(rest) == "." || !filepath.IsLocal(rest):
		// A way up would make the base say nothing about what is meant.
		return "", "", fmt.Errorf("%q leads to its base or out of it", string(p))
	}
	return filepath.Join(base, rest), base, nil
}

// A found is a file that a pattern names: its path, and where that leads.
type found struct{ path, source string }

const wildcards = "*?["

func (p Pattern) expand(w Where) ([]found, error) {
	path, base, err := p.split(w)
	if err != nil {
		return nil, err
	}
	paths := []string{path}
	if at := strings.IndexAny(path, wildcards); at >= 0 {
		if paths, err = filepath.Glob(path); err != nil {
			return nil, fmt.Errorf("%q: %w", string(p), err)
		}
		if base == "/" {
			base = filepath.Dir(path[:at] + "x")
		}
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		if len(paths) == 0 {
			return nil, nil // nothing there to find
		}
		return nil, fmt.Errorf("%q: %w", string(p), err)
	}
	var all []found
	for _, path := range paths {
		source, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%q: %s does not exist", string(p), path)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", string(p), err)
		}
		if !inside(source, base) {
			return nil, fmt.Errorf("%q: %s leads to %s, out of %s; name that itself, if it is meant", string(p), path, source, base)
		}
		all = append(all, found{path, source})
	}
	return all, nil
}

func inside(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
