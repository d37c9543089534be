// Package changes says what an agent changed in a directory.
//
//	Directory ──Snapshot──▶ State ──Diff──▶ Patch
//	    │   walk, stage, index
//	    └──Pick──▶ files that patterns name
//
// The walk goes from descriptor to descriptor and never through a link, and
// stages copies of what differs: no git process of the host reads anything an
// agent could have written. Of an overlay it reads the upper directory, as the
// kernel does, and grafts what is there on the base's tree, at a cost of what
// changed. A patch is applied to its own base before it is handed out.
//
// What counts as changed is what "git add -A" would add; what is over a limit is
// left out by name, and everything else is collected.
package changes
