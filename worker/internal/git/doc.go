// Package git runs the host's git so that nothing of it can be steered from
// outside, and does in Go what git must not be asked to do.
//
// A [Repo] is a git directory that only the host writes. Every git process
// gets an environment of its own: no system or user configuration, no hooks,
// no file-system monitor, no attributes file, no protocol. What an agent could
// have written (its .git, its attributes, its ignore files) is never read by
// one of these processes: files are walked, matched against ignore patterns
// and copied by Go code, and git sees the copies only.
//
// The package is the only place that looks at git's error text; others ask
// with errors.Is and errors.As.
package git
