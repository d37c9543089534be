package gitmonitor

import "errors"

var errRenamed = errors.New("a directory of the template was renamed")

// List returns the names of what setup has written in the directory layer, over a
// template's directories, as the hook gives them. It is made on the host, where the
// kernel's marks can be read. There is no list of a layer in which a directory of the
// template was renamed.
func List(layer string, trees []string, read Marks) ([]byte, error) {
	h := &hook{places: places{workspace: layer, upper: layer}, lower: trees, settled: true}
	h.shows = func(name string) (bool, error) {
		opaque, redirect, err := read(layer + "/" + name)
		if err == nil && redirect != "" {
			err = errRenamed
		}
		if err != nil || opaque {
			return false, err
		}
		_, found, err := h.below(name)
		return found, err
	}
	err := h.directory("", false)
	return h.answer, err
}
