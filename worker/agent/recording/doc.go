// Package recording keeps what an agent's program and its adapter said to each other in one run,
// so that the adapter can be tested without the program.
//
//	Record: program in a jail ─▶ lines of both sides ─▶ normalized ─▶ Recording ─▶ Write
//	Replay: Read ─▶ Recording ─▶ the adapter's decoder ─▶ events ─▶ the same as in the Recording?
//
// A recording is a directory of three files. recording.json says what ran and how, transcript.jsonl
// has the lines in the order in which they were read and written, and events.golden has the
// arguments that the adapter starts the program with and the events that it makes of the lines.
// Secrets are removed. Ids, times, durations and paths of the host are replaced, so that the same
// program writes the same recording again; ids that the adapter itself chose stay as they are,
// because it knows its own messages by them.
//
// A recording of strangers is data: Replay runs no program, and reads nothing outside of the
// directory.
package recording
