// Package repo holds what is true of the whole repository: which package may
// import which, how long things may get, what a package must say of itself and
// what only a program may do.
//
// A [Rule] looks at a [Tree], which is the source as text and syntax, and
// reports what it finds wrong. Nothing is built, so that the rules also see the
// files of other operating systems. The tests run every rule on this repository,
// and on small trees that each break one of them.
package repo
