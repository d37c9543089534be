//go:build !linux

package stdio

// Unread reports nothing: what waits in a pipe is not known.
func (*Pipes) Unread() bool { return false }
