// Package worktree keeps linked worktrees of users' own repositories, made for people
// from the results of jobs, or for jobs:
//
//	(none) ──▶ adding ──▶ ready ──▶ removing ──▶ (none)
//	              └──▶ working ◀─┴──▶┘
//
// While a job works in one, by the workspace strategy linked, it is working.
//
// A directory of ours has a record of each worktree. The record, and the repository
// that it names, decide what is done to a worktree. Nothing in the worktree itself is
// trusted, its .git file least of all, because an agent may have written it. If a
// killed process left a record between two states, the next call for that repository
// completes the step.
//
// For changes of branches and objects git reads the configuration of the user's
// repository, and no other. It runs no hook and no file-system monitor. Files are
// written through a git directory of ours, so no filter runs, whatever configuration
// and attributes say: the program of a filter may be a file of the result.
package worktree
