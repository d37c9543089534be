// Package commits takes over commits that an agent, or another untrusted author, made.
//
//	Reader ──a jail──▶ bundle ──Bundle.Take──▶ Branch, in a repository of ours
//
// The git directory of an agent is read in a jail only. The result is checked like the
// pack of any stranger: each object is well formed, names in it are harmless, no object
// is missing, and the commits build on the base.
package commits
