//go:build !linux

package jailinit

// Main does nothing on systems whose jails need no first program.
func Main() { called.Store(true) }
