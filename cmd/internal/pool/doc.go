// Package pool is the way from a command to a pool: to the one that --server names, to
// the one that runs on the data directory, or to one that the command runs itself.
//
//	settings ──▶ Open ──▶ connection ──▶ queue, logs, artifacts, client ──▶ Close
//	                └── no pool runs: the data directory's broker, in this process
//
// Errors say what to do about them, and have the exit code of the command. Beyond
// --server and --data the package knows nothing of flags, and it prints data only in
// [List].
package pool
