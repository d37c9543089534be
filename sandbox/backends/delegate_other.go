//go:build !linux

package backends

import "context"

// Delegate does nothing: this system has no service manager to ask.
func Delegate(context.Context) (moved bool, err error) { return false, nil }
