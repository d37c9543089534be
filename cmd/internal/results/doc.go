// Package results keeps a batch's results directory: what was asked for, what
// came of each item, and reports for people and for other tools.
//
//	Open ─▶ Add, Add, … ─▶ Finish          a run, or one that goes on
//	Load ─▶ Results, Totals, Report        somebody looks at it
//
// The line in results.jsonl is the commit point of an item. Its patch and its
// log are complete on disk before, so a program that dies at any moment leaves
// either all of an item or nothing that counts. [Open] cuts off a last line
// that was not written to its end, and running the same batch again does only
// what is missing.
//
// The directory may have been written by others, and what stands in its files
// came from agents. Names that come in are checked, no symbolic link is
// followed out of the directory, and reports show text as text.
package results
