package results

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Finish writes batch.json with the batch's state, the predictions and the
// reports, from what is there now. It may be called again and again: after
// an interrupt, at the end, and on a directory that was loaded, unless
// another process works in it. Why says why a batch was stopped.
func (d *Dir) Finish(state State, why string) error {
	if d.held == nil {
		lock, err := d.files.lock()
		if err != nil {
			return err
		}
		defer lock.Close() // nothing was written to it since
	}
	totals, err := d.Totals()
	if err != nil {
		return err
	}
	if state == Completed && totals.Missing > 0 {
		state, why = Stopped, cmp.Or(why, fmt.Sprintf("%d of %d items have no result", totals.Missing, totals.Items))
	}
	m := d.Manifest()
	if state == Completed && totals.Failed > 0 {
		state, why = Failed, cmp.Or(why, fmt.Sprintf("%d of %d items did not succeed", totals.Failed, m.different()))
	}
	now := time.Now().UTC()
	m.State, m.Why, m.Totals, m.Finished = state, why, totals, &now
	if d.held == nil {
		// The caller only looks at a batch that ended before: it has not continued.
		m.Finished, m.Totals.WallSeconds = d.Manifest().Finished, d.wall
	}
	if state == Running {
		m.Finished = nil
	}
	d.mu.Lock()
	d.manifest = m
	d.mu.Unlock()
	reports := reporter{d}
	if err := reports.predictions(); err != nil {
		return err
	}
	if err := reports.reports(); err != nil {
		return err
	}
	// Last, so that a state other than running means: all files are there.
	return d.writeManifest(m)
}

// Totals counts the results that are there now.
func (d *Dir) Totals() (Totals, error) {
	m := d.Manifest()
	t := Totals{Items: len(m.Items), Outcomes: map[jobs.Outcome]int{}, Reasons: map[jobs.Reason]int{}, WallSeconds: d.wall}
	if d.held != nil {
		t.WallSeconds += time.Since(d.opened).Seconds()
	}
	names, good := m.names(), map[string]bool{}
	for r, err := range d.Results() {
		if err != nil {
			return t, err
		}
		t.add(r)
		name := names[r.ID]
		good[name] = good[name] || r.Outcome == jobs.Success || r.Outcome == jobs.Skip
	}
	t.Missing = t.Items - t.Done
	for _, one := range good {
		if !one {
			t.Failed++
		}
	}
	return t, nil
}
