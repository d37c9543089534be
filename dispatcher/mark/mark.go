// Package mark is how a pool knows its own again: its texts on a forge by comments of HTML in
// them, and the jobs of a webhook's rule by their labels; values only.
//
// A mark proves nothing, since anybody can write one. Whoever finds one asks the record of the
// job that it names.
package mark

import (
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// The labels of jobs whose rule follows their issues.
const (
	HookLabel  = "hook"  // the rule's name
	IssueLabel = "issue" // the page of the issue
)

const (
	opening = "<!-- penstock: "
	ofJob   = opening + "job "
	closing = " -->"
)

// End ends the part of a pull request's text that the pool writes.
const End = opening + "end" + closing

// Job begins that part.
func Job(id string) string { return ofJob + id + closing }

// PullRequest is in the comment that tells of a job's pull request.
func PullRequest(job, number string) string {
	return opening + "pull request " + number + " of job " + job + closing
}

// Question is in the comment with a question of a job's agent.
func Question(job, ask string) string {
	return opening + "question " + strings.NewReplacer("<", "", ">", "", "--", "").Replace(ask) + " of job " + job + closing
}

// IsOwn reports whether a text has a mark.
func IsOwn(text string) bool { return strings.Contains(text, opening) }

// maxJobs bounds how many jobs a text may name.
const maxJobs = 8

// Jobs are the ids of the jobs that the text of a pull request names.
func Jobs(text string) (ids []string) {
	for range maxJobs {
		_, rest, found := strings.Cut(text, ofJob)
		if !found {
			break
		}
		id, _, _ := strings.Cut(rest, closing)
		if jobs.IsID(id) {
			ids = append(ids, id)
		}
		text = rest
	}
	return ids
}
