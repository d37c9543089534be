// Package commits takes over what an agent, or anybody else, committed.
//
//	Reader ──a jail──▶ bundle ──Bundle.Take──▶ Branch, in a repository of ours
//
// The git directory that an agent had is read in a jail only. What comes out of
// there is checked as any stranger's pack: each object is well formed, names in
// it harm nobody, none is missing, and the commits build on the base.
package commits
