// Package disk holds what survives a kill on the host's file system: locks
// that end with their process, a trash for what must go at once, and records
// that a reader sees old or new, never half.
//
//	path ──Take──▶ trash ──delete, Empty──▶ (gone)
//
// What it opens, changes or removes may have been written by an agent. So it
// follows no link, and works on what its owner made unreadable or immutable.
package disk
