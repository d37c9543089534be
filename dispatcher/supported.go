package dispatcher

import (
	"errors"

	"github.com/penstock-run/penstock/jobs"
)

// check reports everything for which a job cannot be accepted.
func (d *Dispatcher) check(job jobs.Job) error {
	if err := job.Validate(); err != nil {
		return err
	}
	if err := supported(job); err != nil {
		return err
	}
	if err := d.cfg.pullRequest(job); err != nil {
		return err
	}
	if d.cfg.Able == nil {
		return nil
	}
	return d.cfg.Able(job)
}

// pullRequest refuses a job whose pull request this pool could not open.
func (cfg Config) pullRequest(job jobs.Job) error {
	if job.Deliver.Mode != jobs.DeliverPR {
		return nil
	}
	err := errors.New("this pool opens no pull requests: penstock serve does, with the settings of forges; or use branch, and open it yourself")
	if cfg.PullRequests != nil {
		err = cfg.PullRequests(job)
	}
	if err == nil {
		return nil
	}
	return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "deliver.mode", Reason: err.Error()}}}
}

// supported refuses what a job may say but this version cannot do yet. A wish
// that is silently ignored would be worse than a refusal.
func supported(job jobs.Job) error {
	var found []jobs.FieldError
	not := func(is bool, field, instead string) {
		if is {
			found = append(found, jobs.FieldError{Field: field, Reason: "is not supported by this version; " + instead})
		}
	}
	not(job.Session != "", "session", "every job opens a session of its own")
	container, backend := job.Isolation == jobs.IsolationContainer, job.Sandbox.Backend
	switch {
	case container && backend != "" && backend != "auto" && backend != "oci":
		found = append(found, jobs.FieldError{Field: "sandbox.backend", Reason: backend + " cannot make containers; use auto or oci"})
	case !container && backend == "oci":
		found = append(found, jobs.FieldError{Field: "sandbox.backend", Reason: "oci needs an image; use isolation container"})
	}
	if len(found) == 0 {
		return nil
	}
	return &jobs.InvalidError{Fields: found}
}
