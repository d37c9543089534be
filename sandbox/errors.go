package sandbox

import (
	"fmt"
	"strings"
)

// An UnsupportedError reports features that a Spec wants and a host lacks.
type UnsupportedError struct {
	Backend string
	Missing []Feature
}

func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, f := range e.Missing {
		names[i] = string(f)
	}
	return fmt.Sprintf("backend %s does not enforce %s on this host; choose another backend, or allow it by name",
		e.Backend, strings.Join(names, ", "))
}

// A FieldError reports a field of a Spec that cannot be used, by its path
// from the Spec: "Mounts[1].Target".
type FieldError struct {
	Field  string
	Value  string
	Reason string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("spec: %s: %q %s", e.Field, e.Value, e.Reason)
}

// A StartError reports that a jail, or the program in it, could not be
// started. Nothing of it runs any more.
type StartError struct {
	Backend string
	Step    string // "start", "set up", "listen", "directory", "execute"
	Detail  string // what the mechanism said, if it said something
	Err     error
}

func (e *StartError) Error() string {
	s := fmt.Sprintf("%s: %s", e.Backend, e.Step)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *StartError) Unwrap() error { return e.Err }
