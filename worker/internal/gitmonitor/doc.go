// Package gitmonitor tells the git of an agent which files of an overlay may differ from
// the checkout that it shows. Without that "git status" looks at each file of the
// repository; with it, at those that the job has written.
//
// It is a hook of git's for monitors of file systems (core.fsmonitor, githooks(5),
// version 2 of the protocol). Git marks each file of its index that it has found
// unchanged, and later looks only at those that the hook names; in the same way it keeps
// the untracked files of each directory. The index of a template is prepared so, see
// [Prepare], and a template never changes. So what may differ is what is in the layers
// above it, now, and the hook names that each time: it keeps no state and no process.
// Git asks what changed since a moment, and an answer that names more is right, too.
//
// What it names:
//
//   - each entry of the upper directory, and removed ones;
//   - for each directory there, a name that does not exist: git reads it again, because
//     the upper directory forgets a new file that is removed again;
//   - all of a directory that does not show the template's one of the same name: the
//     kernel marks it as opaque or renamed, which a jail cannot see, but it has another
//     inode number then than in the list that the host has made of the template;
//   - each file of the index that the template's index does not have;
//   - what the layer of setup has written, from a list that is made with the layer.
//
// If anything is not as it expects, the hook fails, and git looks at every file: for a
// worktree elsewhere, an index that a variable names, or a mount inside the workspace.
// It runs in the agent's jail with the agent's rights, and what an agent makes of it
// deceives only the agent's own git: results are collected without it.
package gitmonitor
