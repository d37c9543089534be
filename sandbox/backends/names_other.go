//go:build !linux && !darwin

package backends

var names = []string{"none"}
