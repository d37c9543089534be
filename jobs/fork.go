package jobs

// PatchName is the artifact that has what a job has changed, as git prints it.
const PatchName = "changes.patch"

// Forked returns the job that begins with a copy of the conversation of j, which
// has the id. What places j among other jobs, names its result, or was said in its
// conversation already, is not the fork's.
func (j Job) Forked(id, prompt string) Job {
	j.Fork, j.Prompt, j.Issue = id, prompt, nil
	j.Key, j.Batch, j.Item, j.Session = "", "", "", ""
	j.DependsOn, j.RunAt, j.FromSalvage, j.Signature, j.Trace = nil, nil, "", nil, Trace{}
	j.Deliver.Branch, j.Repo.Commit = "", ""
	return j
}
