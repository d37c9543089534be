// Package changes says what an agent changed in a directory.
//
//	Directory ──Snapshot──▶ State ──Diff──▶ Patch
//	    │   walk, stage, index
//	    └──Pick──▶ files that patterns name
//
// The walk goes from descriptor to descriptor, never follows a link, and stages copies
// of changed files: no git process of the host reads a file that an agent could have
// written. In an overlay it reads the upper directory, as the kernel does, and grafts
// the changes on the base's tree, at a cost that grows with the changes only. A patch
// is applied to its own base before it is returned.
//
// Changed files are those that "git add -A" would add. Files over a limit are left out
// and named; all others are collected.
package changes
