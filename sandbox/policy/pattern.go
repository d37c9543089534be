package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
// The last elements may hold *, ? and [a-z], which do not match a slash.
// A pattern without them has to exist.
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
	base, rest := "", ""
	switch s := string(p); {
	case strings.HasPrefix(s, "//"):
		base, rest = "/", s[2:]
	case strings.HasPrefix(s, "/"):
		base, rest = filepath.Dir(w.file), s[1:]
	case strings.HasPrefix(s, "~/"):
		base, rest = w.Home, s[2:]
	case strings.HasPrefix(s, "./"):
		base, rest = w.Dir, s[2:]
	default:
		return "", fmt.Errorf("%q %w", s, errPattern)
	}
	switch {
	case !filepath.IsAbs(base):
		return "", fmt.Errorf("%q: it is not known what it is relative to", string(p))
	case strings.ContainsAny(rest, "\x00\n\r"):
		return "", fmt.Errorf("%q contains a NUL or a line break", string(p))
	case filepath.Clean(rest) == "." || !filepath.IsLocal(rest):
		// A way up would make the base say nothing about what is meant.
		return "", fmt.Errorf("%q leads to its base or out of it", string(p))
	}
	return filepath.Join(base, rest), nil
}

func (p Pattern) expand(w Where) ([]string, error) {
	path, err := p.path(w)
	if err != nil {
		return nil, err
	}
	if !strings.ContainsAny(string(p), "*?[") {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%q: %s does not exist", string(p), path)
		}
		return []string{path}, nil
	}
	return filepath.Glob(path)
}
