package jailinit

import (
	"os"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/overlay"
)

// mountAndExecute is the whole life of this program under OverlayName: it is
// alone in a user and a mount namespace, mounts the view there, gives up what
// let it do that, and becomes the mechanism.
func mountAndExecute() {
	l, path, args, ok := unwrap(os.Args)
	if !ok {
		os.Stderr.WriteString("overlay: malformed arguments\n")
		os.Exit(127)
	}
	err := overlay.View{Lower: l.Lower, Upper: l.Upper, Work: l.Work, Alone: l.Alone}.Mount(l.Target, true)
	if err == nil {
		err = prctl(prCapAmbient, prCapAmbientClearAll, 0)
	}
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	// The runner takes the last line as the explanation.
	os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(127)
}
