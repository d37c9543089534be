package jailinit

// Look is the argument with which the program at Path, executed as an agent,
// looks around and for the program that the argument after it names. It prints
// a line "key=value" for each thing it sees and ends with code 0:
//
//	program       its path, "" if it is not here
//	uid           of this process
//	first         the number of its parent
//	filter        the mode of its filter of system calls; 2 is a filter
//	gain          1 if no program it executes can gain privileges
//	capabilities  0 if it has none
//	root          "read-only" or "writable"
//	temporary     "memory" if /tmp is a file system in memory
//	interfaces    of the network, separated by commas
//	ipc           "empty" if there is no shared memory of any process
//	landlock      the version of the kernel's second wall, "" without
const Look = "look"
