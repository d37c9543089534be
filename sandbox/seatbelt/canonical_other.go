//go:build !darwin

package seatbelt

import "path/filepath"

// canonical resolves links: elsewhere commands are compiled to be read only.
func canonical(path string) (string, error) { return filepath.EvalSymlinks(path) }
