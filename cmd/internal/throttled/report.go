package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// What a run has to show.
const (
	leastUsed   = 0.90
	mostRefused = 0.05
	leastOrder  = 0.5 // that of jobs of two workers, of which one is much faster
)

// judge returns what is missed of that.
func (r report) judge() error {
	wrong := []error{r.lost()}
	miss := func(missed bool, format string, args ...any) {
		if missed {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	miss(r.over < warm, "too short: the first minute does not count, and %v are left", r.over)
	miss(r.used < leastUsed, "%.1f %% of the allowed calls were made, less than %.0f %%", 100*r.used, 100*leastUsed)
	miss(r.refused > mostRefused, "%.1f %% of the calls were refused, more than %.0f %%", 100*r.refused, 100*mostRefused)
	miss(r.order < leastOrder, "not fair: equal jobs end in another order than they were submitted in: %.2f, less than %.1f", r.order, leastOrder)
	return errors.Join(wrong...)
}

// lost returns what must not be, however fast the machine is.
func (r report) lost() error {
	var wrong []error
	if r.succeeded != r.agents {
		wrong = append(wrong, fmt.Errorf("%d of %d jobs succeeded", r.succeeded, r.agents))
	}
	if r.dead > 0 {
		wrong = append(wrong, fmt.Errorf("%d dead letters", r.dead))
	}
	if r.burned > 0 {
		wrong = append(wrong, fmt.Errorf("%d attempts count against their jobs", r.burned))
	}
	if r.early > 0 {
		wrong = append(wrong, fmt.Errorf("%d jobs began while no call was allowed", r.early))
	}
	if r.calls.late > 0 {
		wrong = append(wrong, fmt.Errorf("%d calls were made while none was allowed", r.calls.late))
	}
	return errors.Join(wrong...)
}

// tell prints what was seen.
func (r report) tell(out io.Writer) {
	row := func(what, format string, args ...any) {
		fmt.Fprintf(out, "%-52s %s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\n%d agents in %.0f s; the load was %.1f at most\n", r.agents, r.took, r.load)
	row("jobs that succeeded, attempts", "%d, %d", r.succeeded, r.attempts)
	row("dead letters, attempts that count", "%d, %d", r.dead, r.burned)
	row("calls, accepted, refused", "%d, %d, %.1f %%", r.calls.asked, r.calls.served, 100*r.refusedOfAll)
	row("models", "%s", r.models)
	row("after the first minute: of the allowed calls, made", "%.1f %% over %v", 100*r.used, r.over.Round(time.Second))
	row("after the first minute: of the calls, refused", "%.1f %%", 100*r.refused)
	row("calls, and jobs that began, while none was allowed", "%d, %d", r.calls.late, r.early)
	row("calls that waited, jobs that were parked, at most", "%d, %d", r.waiting, r.parks)
	for _, why := range r.against {
		row("an attempt that counts", "%s", why)
	}
	row("equal jobs: quickest, median, slowest", "%v, %v, %v", r.quickest.Round(time.Second), r.median.Round(time.Second), r.slowest.Round(time.Second))
	row("equal jobs: order of ends with that of submissions", "%.2f (1: the same)", r.order)
}
