// Package delivery makes a branch from a job's result, in the repository that the job
// began from.
//
//	Origin ──compose──▶ commit ──send──▶ objects are there ──Permit──▶ the branch leads there
//
// It only ever makes a new branch, or moves one that points to a commit of an earlier
// attempt. It compares and changes in one step, so of several deliveries only one
// succeeds.
package delivery
