package outcome

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

// A Result is written during the attempt, by the attempt and by the programs of the
// agent's jail: its methods may be called from any goroutine.
type Result struct {
	before jobs.Spent // by earlier attempts

	mu  sync.Mutex
	now jobs.Result
}

func newResult(rec jobs.Record) *Result {
	r := &Result{before: rec.SpentBefore, now: rec.Result()}
	if rec.Started != nil {
		r.now.Durations.Queue = rec.Started.Sub(rec.Submitted).Seconds()
	}
	return r
}

// change writes to the result.
func (w *Result) change(write func(*jobs.Result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	write(&w.now)
}

// Now returns the result as it is now.
func (w *Result) Now() jobs.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// AddRoot records what the programs of a jail come from; empty: unknown.
func (w *Result) AddRoot(root string) {
	w.change(func(r *jobs.Result) {
		if root != "" && !slices.Contains(r.Roots, root) {
			r.Roots = append(slices.Clone(r.Roots), root)
		}
	})
}

// SetBackend records the backend of the attempt's jails, and the features that a jail
// was allowed to lack.
func (w *Result) SetBackend(name string, weaker ...string) {
	w.change(func(r *jobs.Result) {
		r.Backend = name
		for _, feature := range weaker {
			if !slices.Contains(r.Weaker, feature) {
				r.Weaker = append(r.Weaker, feature)
			}
		}
	})
}

// SetBase records the commit that the workspace begins from.
func (w *Result) SetBase(commit string) {
	w.change(func(r *jobs.Result) { r.BaseCommit = commit })
}

// SetValue records the value that the agent has set.
func (w *Result) SetValue(value json.RawMessage) {
	w.change(func(r *jobs.Result) { r.Value = value })
}

// SetAgent records the version of the agent's program, and its digest.
func (w *Result) SetAgent(version, digest string) {
	w.change(func(r *jobs.Result) { r.AgentVersion, r.AgentDigest = version, digest })
}

// SetDisk records the size of the workspace.
func (w *Result) SetDisk(use jobs.DiskUse) {
	w.change(func(r *jobs.Result) { r.Disk = use })
}

// Spend records the attempt's usage of a model so far.
func (w *Result) Spend(spent jobs.Spent, model string) {
	w.change(func(r *jobs.Result) {
		r.Spend(w.before, spent)
		r.Model = model
	})
}

// Took adds to the time of a step.
func (w *Result) Took(step string, seconds float64) {
	w.change(func(r *jobs.Result) {
		d := &r.Durations
		switch step {
		case "provision":
			d.Provision += seconds
		case "jail":
			d.Jail += seconds
		case "agent":
			d.Agent += seconds
		case "check":
			d.Check += seconds
		case "collect":
			d.Collect += seconds
		}
	})
}

// maxCases is how many failed tests a result names. The events of checks name all of those
// that are known.
const maxCases = 100

// Ran records that commands of the job ran, or that their output was reused. A result is one
// message of the broker: the oldest names of failed tests make room for new ones.
func (w *Result) Ran(checks ...jobs.Check) {
	w.change(func(r *jobs.Result) {
		r.Checks = append(slices.Clone(r.Checks), checks...)
		named := 0
		for i := len(r.Checks) - 1; i >= 0; i-- {
			tests := r.Checks[i].Tests
			if tests == nil {
				continue
			}
			if named += len(tests.FailedCases); named > maxCases {
				short := *tests
				short.FailedCases, short.Notes = nil, nil
				r.Checks[i].Tests = &short
			}
		}
	})
}

// Attach lists a file of the session's log. A later one with the same name replaces it.
func (w *Result) Attach(file jobs.Artifact) {
	w.change(func(r *jobs.Result) {
		r.Artifacts = slices.DeleteFunc(r.Artifacts, func(old jobs.Artifact) bool { return old.Name == file.Name })
		r.Artifacts = append(r.Artifacts, file)
	})
}

func (w *Result) list(files ...jobs.Artifact) {
	w.change(func(r *jobs.Result) { r.Artifacts = append(r.Artifacts, files...) })
}

// Settled copies the outcome from the record.
func (w *Result) Settled(rec jobs.Record) jobs.Result {
	w.change(func(r *jobs.Result) { r.Outcome, r.Reason, r.Message = rec.Outcome, rec.Reason, rec.Message })
	return w.Now()
}
