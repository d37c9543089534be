// Package source finds the repository that a job's address means, and says what keeps
// the worker from reading it.
//
//	address ──Locate──▶ Source ──CheckReadable──▶ git reads it
//
// A path may lead into a repository, or to a linked worktree or a submodule of one. An
// earlier agent may have written the files on the way, so that another repository of
// this host is fetched. So a link counts only if both of its ends name each other, and
// no git process reads a repository in which it could wait for ever.
package source
