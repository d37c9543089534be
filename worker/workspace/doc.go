// Package workspace makes the directory that an attempt works in, and collects the
// changes in it.
//
//	Prepare ──▶ Workspace ──▶ the jail runs and ends ──▶ Collect ──▶ Close
//	                                                       (any number of times)
//
// With isolation worktree or container a workspace has its own files and its own .git
// with branch, index and configuration, made from a base that is fetched once for all
// jobs. The agent may change it freely. It shares nothing with the user's repository or
// another job, and no linked git worktree exists anywhere. With isolation none the
// workspace is the given directory itself.
//
// How the files are made is a [Strategy]. Each is a type that prepares the files, shows
// them to the jail, names the layers below them, and releases them: overlay, clone,
// linked, hook, and besides these in place and scratch. An overlay shows the commit's
// checkout, which all its jobs share, through a directory that takes the writes: it
// costs the same for ten files and for a hundred thousand, and that directory has the
// changes. It exists in the jail's own table of mounts alone, see [Workspace.Show]. A
// clone has all files in a directory of the host. Both collect the same, with one
// exception: an overlay knows a directory that was renamed, and keeps files of it that
// an ignore file names at the new place, as "git mv" does.
//
// Jobs can share the output of setup over a checkout in the same way, see
// [Workspace.Setup]: as one more layer below the directory of the job. Changes of setup
// are collected like those of the job.
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
// Changed files are those that "git add -A" would add: ignored files of the workspace
// are left out unless the base has them. Exclude files in .git and in the agent's home
// do not count. A nested repository's files are kept and its .git is left out.
// Conversions of line ends and encodings follow the attributes of the base, not the
// agent's.
//
// On disk, below Config.Dir:
//
//	mirrors/<remote>/mirror.git      bare; what was fetched from one remote
//	mirrors/<remote>/bases/<commit>  a .git to copy, an index, and for overlays a
//	                                 checkout, whole or what differs from that of
//	                                 another commit; never changed
//	  …/layers/<key>                 what setup wrote over the checkout; never changed
//	jobs/<id>/                       one workspace and all that belongs to it
//	locks/<id>                       locked by the process that owns jobs/<id>
//	trash/                           renamed here first, then deleted
//
// A lock is the only sign of ownership: it ends with the last process that holds it,
// git's included, so several workers may share one directory.
package workspace
