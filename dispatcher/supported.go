package dispatcher

import "github.com/penstock-run/penstock/jobs"

// check reports everything for which a job cannot be accepted.
func check(job jobs.Job) error {
	if err := job.Validate(); err != nil {
		return err
	}
	return supported(job)
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
	not(job.Isolation == jobs.IsolationContainer, "isolation", "use worktree or none")
	not(job.Image != "", "image", "only isolation container has an image")
	not(job.Sandbox.Network != jobs.NetworkNone, "sandbox.network", `use "none": the agent reaches its model API and nothing else`)
	not(job.Deliver.Mode == "branch" || job.Deliver.Mode == "pr", "deliver.mode", "use patch, and penstock job apply")
	not(job.CheckRounds > 0, "check_rounds", "a failing check ends the job")
	not(job.Agent.Interactive, "agent.interactive", "agents are told that nobody answers")
	not(job.Session != "", "session", "every job opens a session of its own")
	not(len(job.DependsOn) > 0, "depends_on", "submit the job when the others have finished")
	if len(found) == 0 {
		return nil
	}
	return &jobs.InvalidError{Fields: found}
}
