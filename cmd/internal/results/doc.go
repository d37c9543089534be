// Package results keeps a batch's results directory: what the batch asked for, the
// result of each item, and reports for people and for other tools.
//
//	Open ─▶ Add, Add, … ─▶ Finish          a run, or one that continues
//	Load ─▶ Results, Totals, Report        a look at it
//
// The line in results.jsonl is the commit point of an item. Its patch and its
// log are complete on disk before, so a program that dies at any moment leaves
// either all of an item or nothing that counts. [Open] cuts off a last line
// that was not written to its end, and running the same batch again does only
// what is missing.
//
// Others may have written the directory, and the contents of its files
// come from agents. The package checks names that come in, follows no symbolic link
// out of the directory, and shows text in reports as text.
package results
