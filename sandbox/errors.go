package sandbox

import (
	"fmt"
	"strings"
)

// An UnsupportedError reports what a Spec wants and a host lacks. Nothing was
// started.
type UnsupportedError struct {
	Backend string
	Missing []Feature
	Err     error // what else is missing, in the backend's own words; nil if features are
}

// Unwrap returns Err.
func (e *UnsupportedError) Unwrap() error { return e.Err }

func (e *UnsupportedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("backend %s cannot make this jail: %v", e.Backend, e.Err)
	}
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
