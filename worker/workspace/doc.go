// Package workspace makes the directory an attempt works in, and says
// afterwards what changed in it.
//
//	Prepare ──▶ Workspace ──▶ the jail runs and ends ──▶ Collect ──▶ Close
//	                                                       (any number of times)
//
// With isolation worktree or container a workspace is a private clone: its
// own files, its own .git with objects, branch and configuration, made from a
// base that is fetched once for all jobs. The agent may do with it what it
// likes. Nothing of it is shared with the user's repository or another job,
// and no linked git worktree exists anywhere. With isolation none the
// workspace is the given directory itself.
//
// Three promises hold whatever the agent wrote:
//
//   - No git process of the host reads anything an agent could have written.
//     Collect walks the files itself, descriptor by descriptor, without
//     following a link, and hands git copies. It needs no .git at all.
//   - The user's repository is only read, and through git-upload-pack only.
//   - Close leaves nothing, and what a kill -9 leaves [Spaces.Sweep] removes,
//     after Config.Salvage has taken what is in it.
//
// What counts as changed is what "git add -A" would add: a file that the
// ignore files of the workspace name is left out unless the base has it.
// Exclude files in .git and in the agent's home do not count. A nested
// repository's files are kept and its .git is left out. Conversions of line
// ends and encodings follow the attributes of the base, not the agent's.
//
// On disk, below Config.Dir:
//
//	mirrors/<remote>/mirror.git      bare; what was fetched from one remote
//	mirrors/<remote>/bases/<commit>  a .git to copy, and an index; never changed
//	jobs/<id>/                       one workspace and all that belongs to it
//	locks/<id>                       locked by the process that owns jobs/<id>
//	trash/                           renamed here first, then deleted
//
// A lock is the only sign of ownership: it ends with the last process that
// holds it, git's included, so several workers may share one directory.
package workspace
