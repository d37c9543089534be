// Package initproc lets the program be the first process of a container, on systems that
// have such a thing.
//
// Processes that lose their parent are left to the first process, which has to reap them,
// or they stay as zombies. The program starts commands by the standard library, which waits
// for them one by one, and a process that waits for any child would take their results away.
// So the first process starts the program once more as its child, and does nothing but reap:
//
//	process 1 ─▶ starts the child ─▶ executes itself without the environment ─▶ reaps, passes signals on, ends as the child does
//
// The environment may have keys, and other processes of the user can read that of process 1.
package initproc
