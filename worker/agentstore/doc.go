// Package agentstore keeps versions of the agents' programs side by side on a host, as packages
// of npm:
//
//	npm ──▶ temporary directory ──try, digest──▶ ROOT/npm/PACKAGE/VERSION ──Use──▶ jails
//	                                                   └──Remove──▶ temporary directory ──▶ gone
//
// A version appears and disappears by a rename. A program that is killed leaves a temporary
// directory, which is never taken for a version and which the next change of the store removes.
// Two programs may install at once, the same version, too.
//
// The directory of a version has the tree that jails see, read-only, and beside it a list of all
// files of the tree with their SHA-256. The digest of a version is the SHA-256 of that list. It
// is checked against the tree before the program starts: all files are read at the first start
// in a process, and after that whenever the metadata of one has changed. That detects changes by
// anything that cannot write beside the tree: programs in jails, a program that updates itself, a
// damaged disk. It is no protection from the user who owns the store.
//
// No script of a package runs when it is installed. A package whose program comes in another
// package for each system, and that would need a script to bring it to its place, names where
// the program is: see [Package].
package agentstore
