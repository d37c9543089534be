// Package overlay mounts a view of directories through one that takes what is
// written.
package overlay

import (
	"bytes"
	"errors"
)

// A View is the layers of a mount.
type View struct {
	Lower []string // the uppermost first
	Upper string   // "" for a view that cannot be written to
	Work  string   // on the file system of Upper
	Alone string   // a directory on which the uppermost layer is shown by itself; "" for none
}

// top is the uppermost layer.
func (v View) top() string {
	if v.Upper == "" {
		return v.Lower[0]
	}
	return v.Upper
}

var errPath = errors.New("overlay: a path of the kernel's options would be longer than a page")

// options returns the view as mount(2) wants it. Of a user's mounts the
// kernel keeps its own marks in attributes that users may set; without that
// the mount succeeds, and directories cannot be removed later.
func (v View) options(user bool) (string, error) {
	s := "lowerdir="
	for i, l := range v.Lower {
		if i > 0 {
			s += ":"
		}
		s += escape(l, ":")
	}
	if v.Upper != "" {
		// Without volatile the end of each mount waits until the whole disk
		// has written what it holds. What a power cut then loses, another
		// attempt makes again.
		s += ",upperdir=" + escape(v.Upper, "") + ",workdir=" + escape(v.Work, "") + ",volatile"
	}
	switch {
	case user:
		s += ",userxattr"
	case v.Upper != "":
		s += ",redirect_dir=on" // else directories of a lower layer cannot be renamed
	}
	if len(s) >= 4096 {
		return "", errPath
	}
	return s, nil
}

// escape marks the characters that separate options and layers.
func escape(path, more string) string {
	var b []byte
	for i := range len(path) {
		if bytes.IndexByte([]byte(`\,`+more), path[i]) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
