// Package checkout works with a work tree of the user's own: it applies patches
// to it, lists its uncommitted changes, and finds the commit that a name means.
//
// An agent's changes reach such a tree only by this package and by linked
// worktrees, and no program of the agent's runs on the way. The user's
// configuration may name programs by relative paths (a filter, a hook, a
// monitor of the file system, a driver that merges or shows differences), and
// a patch may rewrite these files and the attributes that call for them. So
// git never works with the user's configuration here. It gets a git directory
// of ours beside the user's files, in which no program is defined; of the
// user's settings it follows those that say how a file is written. Files with
// a filter are written as they are in the repository, and the caller learns
// their names.
package checkout
