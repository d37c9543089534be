package seatbelt

import (
	"fmt"

	"github.com/penstock-run/penstock/sandbox"
)

// readPaths resolves the paths in a Spec.
func readPaths(spec sandbox.Spec) (hostPaths, error) {
	var p hostPaths
	find := func(field, path string, writable bool) (string, error) {
		real, err := canonical(path)
		if err != nil {
			return "", &sandbox.FieldError{Field: field, Value: path, Reason: "cannot be used: " + err.Error()}
		}
		if real == "/" {
			return "", &sandbox.FieldError{Field: field, Value: path, Reason: "is the whole host"}
		}
		p.named = append(p.named, hostPath{real, writable})
		return real, nil
	}
	var err error
	if spec.Workspace != "" {
		if p.workspace, err = find("Workspace", spec.Workspace, !spec.WorkspaceReadOnly); err != nil {
			return p, err
		}
	}
	if spec.Home != "" {
		if p.home, err = find("Home", spec.Home, true); err != nil {
			return p, err
		}
	}
	for i, m := range spec.Mounts {
		if _, err := find(fmt.Sprintf("Mounts[%d].Source", i), m.Source, m.Writable); err != nil {
			return p, err
		}
	}
	p.named = inOrder(p.named)
	return p, nil
}
