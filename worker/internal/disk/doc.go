// Package disk keeps state on the host's file system that survives a kill: locks that
// end with their process, a trash for directories that must vanish at once, and records
// that a reader sees old or new, never half.
//
//	path ──Take──▶ trash ──delete, Empty──▶ (gone)
//
// An agent may have written the files that it opens, changes or removes. So it follows
// no link, and can handle files that are unreadable or immutable.
package disk
