// Package git runs the host's git so that no file of an agent or a user can influence
// it, and does in Go what git must not do.
//
// A [Repo] is a git directory that only the host writes. Every git process gets an
// environment of its own: no system or user configuration, no hooks, no file-system
// monitor, no attributes file, no protocol. None of these processes reads a file that
// an agent could have written (its .git, its attributes, its ignore files): Go code
// walks the files, matches them against ignore patterns and copies them, and git sees
// only the copies.
//
// Only this package examines git's error text; other packages use errors.Is and
// errors.As.
package git
