// Package worktree keeps linked worktrees of users' own repositories, made for
// people from the results of jobs, or for jobs:
//
//	(none) ──▶ adding ──▶ ready ──▶ removing ──▶ (none)
//	              └──▶ working ◀─┴──▶┘
//
// While a job works in one, by the workspace strategy linked, it is working.
//
// A record of each is kept in a directory of ours. What is done to one follows
// from its record and from the repository that the record names; nothing that
// lies in the worktree is asked, its .git file least of all, because whoever
// worked there may have written it. A record that a killed process left
// between two states is settled by the next call for that repository.
//
// Git reads the configuration of the repository, which is the user's, and no
// other, for what it does to branches and objects. It runs no hook and no
// file-system monitor. Files are made by way of a git directory of ours, so
// that no filter runs, whatever configuration and attributes say: its program
// may be a file of the result.
package worktree
