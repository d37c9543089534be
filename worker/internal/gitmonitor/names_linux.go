package gitmonitor

import "errors"

var errRenamed = errors.New("a directory of the template was renamed")

// Names returns the names of what setup has written in the directory layer, over a template
// with these [Directories], as the hook gives them. It is made on the host, where the kernel's
// marks can be read. There are none for a layer in which a directory of the template was
// renamed.
func Names(layer string, template []byte, read Marks) ([]byte, error) {
	h := &hook{places: places{workspace: layer, upper: layer}, below: directories{}, settled: true}
	h.shows = func(name string) (bool, error) {
		opaque, redirect, err := read(layer + "/" + name)
		if err == nil && redirect != "" {
			err = errRenamed
		}
		_, found := h.below[name]
		return found && !opaque, err
	}
	if err := h.below.add(template); err != nil {
		return nil, err
	}
	err := h.directory("", false)
	return h.answer, err
}
