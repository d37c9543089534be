// Package checkout works with a work tree of the user's own: it puts patches
// into it, says what is not committed in it, and which commit a name means.
//
// What an agent wrote gets into such a tree by this package and by linked
// worktrees only, and no program of the agent's runs on the way. The user's
// configuration may name programs by relative paths (a filter, a hook, a
// monitor of the file system, a driver that merges or shows differences), and
// a patch may rewrite these files and the attributes that call for them. So
// git never works with the user's configuration here. It gets a git directory
// of ours beside the user's files, in which no program is defined; of the
// user's settings it follows those that say how a file is written. Files with
// a filter are written as they are in the repository, and the caller is told
// their names.
package checkout
