package jobs

import (
	"errors"
	"fmt"
	"regexp"
)

// Limits of what a job may ask of its pull request.
const (
	MaxPullLabels    = 20
	MaxPullReviewers = 15
)

// DraftArtifact is the artifact with the agent's description of its change: a title in the
// first line, an empty line, the text.
const DraftArtifact = "draft.md"

// A PullRequest is what the pool knows about the pull request of a job that asks for one
// by its mode of delivery. What people do with it afterwards is not written here.
type PullRequest struct {
	State  PullRequestState `json:"state" jsonschema:"What has become of it."`
	URL    string           `json:"url,omitempty" jsonschema:"Its page, once it was opened."`
	Number int              `json:"number,omitempty" jsonschema:"Its number in the repository, once it was opened."`
	// Epoch is the attempt whose result was dealt with last.
	Epoch uint64 `json:"epoch,omitempty" jsonschema:"The attempt that it shows, or for which it was decided that there is none."`
	// Message says what keeps it, or why there is none.
	Message string `json:"message,omitempty" jsonschema:"What keeps it from being opened or updated, or why there is none."`
}

// PullRequestState is what has become of a pull request.
type PullRequestState string

// The states of a pull request. The pool opens it once the job has succeeded.
const (
	PullWanted  PullRequestState = "wanted"  // it is opened when the job has succeeded
	PullOpen    PullRequestState = "open"    // it was opened
	PullNone    PullRequestState = "none"    // the job had nothing to show
	PullRefused PullRequestState = "refused" // the forge does not take it, whenever it is asked
)

// PullDue reports whether the pool has to open or update the job's pull request: it has
// succeeded, and what this attempt made was not dealt with yet.
func (r Record) PullDue() bool {
	return r.PullRequest != nil && r.State == Finished && r.Outcome == Success && !r.Purging && r.PullRequest.Epoch != r.Epoch
}

// forgeName is a label or the name of an account on a forge.
func forgeName(s string) error {
	if ok, err := regexp.MatchString(`^[^\x00-\x1f\x7f,]{1,100}$`, s); !ok || err != nil {
		return fmt.Errorf("%q is not a name of 1 to 100 characters without commas", s)
	}
	return nil
}

func (j Job) validatePullRequest(found *InvalidError) {
	d := j.Deliver
	for field, list := range map[string]struct {
		names []string
		most  int
	}{"deliver.labels": {d.Labels, MaxPullLabels}, "deliver.reviewers": {d.Reviewers, MaxPullReviewers}} {
		if len(list.names) > 0 && d.Mode != DeliverPR {
			found.add(field, fmt.Errorf("has no meaning with deliver mode %q; use %q", d.Mode, DeliverPR))
		}
		if len(list.names) > list.most {
			found.add(field, fmt.Errorf("has %d names; %d at most", len(list.names), list.most))
		}
		for _, name := range list.names {
			found.add(field, forgeName(name))
		}
	}
	if d.Mode == DeliverPR && j.Repo.URL == "" {
		found.add("repo.url", errors.New("is needed for a pull request"))
	}
}
