package jobs

import (
	"errors"
	"fmt"
	"strings"
)

// The modes of delivery that put a result into the repository.
const (
	DeliverBranch = "branch"
	DeliverPR     = "pr"
)

// OnBranch reports whether the result becomes a branch of the repository.
func (d Deliver) OnBranch() bool { return d.Mode == DeliverBranch || d.Mode == DeliverPR }

// DeliveryBranch is the name of the branch that the job with that id delivers
// to: the one that it asks for, else penstock/<batch>/<item>, else
// penstock/<id>. An item whose name cannot be part of a branch's is replaced
// by the job's id.
func (j Job) DeliveryBranch(id string) string {
	if j.Deliver.Branch != "" {
		return j.Deliver.Branch
	}
	if j.Batch == "" {
		return "penstock/" + id
	}
	name := "penstock/" + j.Batch + "/" + j.ItemID(id)
	if checkBranch(name) != nil {
		name = "penstock/" + j.Batch + "/" + id
	}
	return name
}

// checkBranch accepts names that are a branch's for every git and on every
// file system, and that cannot be taken for a commit or for another kind of ref.
func checkBranch(s string) error {
	bad := fmt.Errorf("%q is not a branch's name: use A-Z, a-z, 0-9, '.', '_', '-' and '/' between them", s)
	if checkRef(s) != nil || commitID().MatchString(s) || s == "HEAD" || s == "refs" || strings.HasPrefix(s, "refs/") {
		return bad
	}
	for part := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || strings.HasSuffix(part, ".") || strings.HasSuffix(strings.ToLower(part), ".lock") {
			return bad
		}
	}
	return nil
}

func (j Job) validateDeliver(found *InvalidError) {
	d := j.Deliver
	found.add("deliver.mode", oneOf(d.Mode, "none", "patch", DeliverBranch, DeliverPR))
	if d.Branch != "" {
		found.add("deliver.branch", checkBranch(d.Branch))
	}
	if d.Branch != "" && (d.Mode == "none" || d.Mode == "patch") {
		found.add("deliver.branch", fmt.Errorf("has no meaning with deliver mode %q; use %q", d.Mode, DeliverBranch))
	}
	if d.DraftText && d.Mode == "none" {
		found.add("deliver.draft_text", fmt.Errorf("has no meaning with deliver mode %q; use %q", d.Mode, DeliverBranch))
	}
	if d.DraftText && j.Agent.Interactive {
		found.add("deliver.draft_text", errors.New("is not for interactive jobs: ask the agent for it"))
	}
	if d.Base != "" {
		found.add("deliver.base", checkBranch(d.Base))
	}
	if d.OnBranch() && j.Isolation == IsolationNone {
		found.add("deliver.mode", fmt.Errorf("%q needs a workspace of the job's own: with isolation none the agent works in the directory itself, which has its commits already", d.Mode))
	}
	j.validatePullRequest(found)
}
