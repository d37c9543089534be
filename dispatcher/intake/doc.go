// Package intake turns what people already have into jobs: files of issues,
// benchmark instances, spreadsheets, or lists of jobs.
//
//	bytes ─detect─▶ entries ─merge─▶ jobs ─render─▶ prompts ─check─▶ items ─select─▶ Items
//
// A line that cannot be read, and a job that is not valid, is the error of
// that one item and names its line; the others go on. What makes the batch as
// a whole ambiguous (two items with one id, a template that does not parse, a
// file over the limits) is the error of [Read], always an [*InputError].
//
// The text of an issue is data. It is never parsed as a template, and the
// fields of a benchmark that give the solution away are dropped before
// anything else sees them.
package intake
