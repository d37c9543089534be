package agentrun

// A signal has a value while there is news for the goroutine that receives from it.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// set never blocks.
func (s signal) set() {
	select {
	case s <- struct{}{}:
	default: // it is set already
	}
}
