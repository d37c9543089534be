// Package source finds the repository that a job's address means, and says
// what keeps the worker from reading it.
//
//	address ──Locate──▶ Source ──CheckReadable──▶ git reads it
//
// A path may lead into a repository, or to a linked worktree or a submodule of
// one. The files on the way may have been written by an earlier agent that
// wants another repository of this host fetched. So a link counts only where
// both of its ends say so, and no git process reads a repository in which it
// could wait for ever.
package source
