package sandbox

import "time"

// SetStartTimeout is for a test of starts that hang.
func SetStartTimeout(d time.Duration) (undo func()) {
	old := startTimeout
	startTimeout = d
	return func() { startTimeout = old }
}
