package seccomp

// Errors, by number, because filters are also compiled on other systems.
const (
	eperm        = 1
	enosys       = 38
	eafnosupport = 97
)

const (
	newNamespace = 0x7e020000 // CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
	newTime      = 0x00000080 // CLONE_NEWTIME; for clone these bits are a signal

	afUnix    = 1
	afInet    = 2
	afInet6   = 10
	afNetlink = 16

	setUID  = 0o4000
	creates = 0o100 | 0o20000000 // O_CREAT, __O_TMPFILE

	tiocsti   = 0x5412 // types characters into a terminal
	tioclinux = 0x541c // pastes into a console
)

// refused calls fail with EPERM whatever their arguments.
var refused = []string{
	// The shape of the view.
	"setns", "pivot_root", "mount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig",
	"fsmount", "fspick", "mount_setattr", "statmount", "listmount",
	// Surfaces with a history.
	"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "perf_event_open", "keyctl",
	"add_key", "request_key", "kcmp", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark",
	"pidfd_getfd", "move_pages", "migrate_pages", "modify_ldt", "lookup_dcookie", "vhangup", "uselib", "ustat",
	"sysfs", "nfsservctl",
	// The machine.
	"quotactl", "quotactl_fd", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
	"create_module", "iopl", "ioperm", "swapon", "swapoff", "reboot", "sethostname", "setdomainname",
	"settimeofday", "clock_settime", "clock_adjtime", "acct", "syslog",
}

// tracing calls reach into other processes.
var tracing = []string{"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"}

type rule struct {
	call  string
	block []instruction // ends with a return on every path
}

// rules returns the list, what is called most often first: the kernel
// answers calls without a rule from a table, but runs the others.
func rules(o Options) []rule {
	list := []rule{
		{"openat", refuseSetUID(2, 3)},
		{"open", refuseSetUID(1, 2)},
		{"ioctl", refuseValues(1, tiocsti, tioclinux)},
		{"socket", socketRule(o)},
		{"socketpair", socketpairRule(o)},
		// Flags and modes behind a pointer cannot be seen. The C libraries
		// fall back to the older calls.
		{"clone3", refuse(enosys)},
		{"openat2", refuse(enosys)},
		{"creat", refuseBits(1, setUID)},
		{"chmod", refuseBits(1, setUID)},
		{"fchmod", refuseBits(1, setUID)},
		{"fchmodat", refuseBits(2, setUID)},
		{"fchmodat2", refuseBits(2, setUID)},
		{"mknod", refuseBits(1, setUID)},
		{"mknodat", refuseBits(2, setUID)},
		{"personality", personalityRule()},
	}
	if !o.Namespaces {
		list = append(list,
			rule{"clone", refuseBits(0, newNamespace)},
			rule{"unshare", refuseBits(0, newNamespace|newTime)},
			rule{"chroot", refuse(eperm)})
	}
	if !o.Trace {
		for _, call := range tracing {
			list = append(list, rule{call, refuse(eperm)})
		}
	}
	for _, call := range refused {
		list = append(list, rule{call, refuse(eperm)})
	}
	return list
}

func refuse(errno uint32) []instruction { return []instruction{ret(fail(errno))} }

func refuseBits(arg, bits uint32) []instruction {
	return []instruction{argument(arg), jumpAnyBit(bits, 0, 1), ret(fail(eperm)), ret(allow)}
}

func refuseValues(arg uint32, values ...uint32) []instruction {
	b := []instruction{argument(arg)}
	for _, v := range values {
		b = append(b, jumpEqual(v, 0, 1), ret(fail(eperm)))
	}
	return append(b, ret(allow))
}

// refuseSetUID looks at the mode only where a file may be created: otherwise
// the argument is whatever was in the register.
func refuseSetUID(flags, mode uint32) []instruction {
	return []instruction{
		argument(flags), jumpAnyBit(creates, 1, 0), ret(allow),
		argument(mode), jumpAnyBit(setUID, 0, 1), ret(fail(eperm)), ret(allow),
	}
}

func personalityRule() []instruction {
	return []instruction{
		argument(0),
		jumpEqual(0, 0, 1), ret(allow),
		jumpEqual(0xffffffff, 0, 1), ret(allow), // asks only
		ret(fail(eperm)),
	}
}

func socketRule(o Options) []instruction {
	b := []instruction{argument(0)}
	families := []uint32{afInet, afInet6}
	if !o.NoUnix {
		families = append(families, afUnix)
	}
	for _, f := range families {
		b = append(b, jumpEqual(f, 0, 1), ret(allow))
	}
	return append(b,
		jumpEqual(afNetlink, 1, 0), ret(fail(eafnosupport)),
		argument(2), jumpEqual(0, 0, 1), ret(allow), // NETLINK_ROUTE: lists interfaces
		ret(fail(eafnosupport)))
}

func socketpairRule(o Options) []instruction {
	b := []instruction{argument(0), jumpEqual(afUnix, 1, 0), ret(fail(eafnosupport))}
	if !o.NoUnix {
		return append(b, ret(allow))
	}
	// A datagram pair can be connected to another address; a stream cannot.
	const typeMask = 0xf
	const sockStream, sockSeqpacket = 1, 5
	return append(b, argument(1), instruction{code: opAnd, k: typeMask},
		jumpEqual(sockStream, 0, 1), ret(allow),
		jumpEqual(sockSeqpacket, 0, 1), ret(allow),
		ret(fail(eafnosupport)))
}
