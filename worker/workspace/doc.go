// Package workspace makes the directory an attempt works in, and says
// afterwards what changed in it.
//
//	Prepare ──▶ Workspace ──▶ the jail runs and ends ──▶ Collect ──▶ Close
//	                                                       (any number of times)
//
// With isolation worktree or container a workspace has its own files and its
// own .git with branch, index and configuration, made from a base that is
// fetched once for all jobs. The agent may do with it what it likes. Nothing
// of it is shared with the user's repository or another job, and no linked
// git worktree exists anywhere. With isolation none the workspace is the given
// directory itself.
//
// How the files are made is a [Strategy]. Each is a type that prepares the files,
// shows them to the jail, says what shows through them, and releases them: overlay,
// clone, linked, hook, and beside them in place and scratch. An overlay shows the
// commit's checkout, which all its jobs share, through a directory that takes what
// is written: it costs the same for ten files and for a hundred thousand, and
// what was written is what changed. It exists in the jail's own table of
// mounts alone, see [Workspace.Show]. A clone has all files in a directory of
// the host. Both collect the same, with one exception: an overlay knows a
// directory that was renamed, and keeps files of it that an ignore file names
// at the new place, as "git mv" does.
//
// What a job's setup writes over a checkout can be shared in the same way, see
// [Workspace.Setup]: as one more layer below the directory of the job. What
// setup changed is collected as if the job had changed it.
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
//	mirrors/<remote>/bases/<commit>  a .git to copy, an index, and for overlays a
//	                                 checkout, whole or what differs from that of
//	                                 another commit; never changed
//	  …/layers/<key>                 what setup wrote over the checkout; never changed
//	jobs/<id>/                       one workspace and all that belongs to it
//	locks/<id>                       locked by the process that owns jobs/<id>
//	trash/                           renamed here first, then deleted
//
// A lock is the only sign of ownership: it ends with the last process that
// holds it, git's included, so several workers may share one directory.
package workspace
