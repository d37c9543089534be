package jailinit

import "strconv"

// OverlayName is the name under which this program is executed to mount a
// view before the mechanism starts, where only a user namespace allows that.
const OverlayName = "/jail/overlay"

// A Layered is what is to be mounted, and on what.
type Layered struct {
	Lower                      []string
	Upper, Work, Alone, Target string
}

// Wrap returns the arguments with which this program mounts the view and then
// executes path with args.
func (l Layered) Wrap(path string, args []string) []string {
	out := append([]string{OverlayName, l.Upper, l.Work, l.Alone, l.Target, strconv.Itoa(len(l.Lower))}, l.Lower...)
	return append(append(out, path), args...)
}

func unwrap(args []string) (l Layered, path string, rest []string, ok bool) {
	if len(args) < 6 {
		return l, "", nil, false
	}
	l.Upper, l.Work, l.Alone, l.Target = args[1], args[2], args[3], args[4]
	n, err := strconv.Atoi(args[5])
	if args = args[6:]; err != nil || n < 1 || len(args) < n+2 {
		return l, "", nil, false
	}
	l.Lower = args[:n]
	return l, args[n], args[n+1:], true
}
