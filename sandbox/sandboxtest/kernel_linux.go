package sandboxtest

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/penstock-run/penstock/sandbox"
	"golang.org/x/sys/unix"
)

// callNumbers names the calls that rows make with bare numbers.
var callNumbers = map[string]int{
	"shmget": unix.SYS_SHMGET, "unshare": unix.SYS_UNSHARE, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"setns": unix.SYS_SETNS, "fsopen": unix.SYS_FSOPEN, "fsmount": unix.SYS_FSMOUNT, "fsconfig": unix.SYS_FSCONFIG,
	"fspick": unix.SYS_FSPICK, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT,
	"mount_setattr": unix.SYS_MOUNT_SETATTR, "statmount": unix.SYS_STATMOUNT, "listmount": unix.SYS_LISTMOUNT,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER, "userfaultfd": unix.SYS_USERFAULTFD, "bpf": unix.SYS_BPF,
	"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY,
	"request_key": unix.SYS_REQUEST_KEY, "kcmp": unix.SYS_KCMP, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
	"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT, "fanotify_init": unix.SYS_FANOTIFY_INIT,
	"pidfd_getfd": unix.SYS_PIDFD_GETFD, "quotactl": unix.SYS_QUOTACTL, "kexec_load": unix.SYS_KEXEC_LOAD,
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF, "reboot": unix.SYS_REBOOT, "sethostname": unix.SYS_SETHOSTNAME,
	"setdomainname": unix.SYS_SETDOMAINNAME, "settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME,
	"acct": unix.SYS_ACCT, "syslog": unix.SYS_SYSLOG, "vhangup": unix.SYS_VHANGUP, "move_pages": unix.SYS_MOVE_PAGES,
	"migrate_pages": unix.SYS_MIGRATE_PAGES, "ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
	"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "personality": unix.SYS_PERSONALITY, "socket": unix.SYS_SOCKET,
	"socketpair": unix.SYS_SOCKETPAIR, "ioctl": unix.SYS_IOCTL, "openat2": unix.SYS_OPENAT2,
	"fanotify_mark": unix.SYS_FANOTIFY_MARK, "kexec_file_load": unix.SYS_KEXEC_FILE_LOAD, "quotactl_fd": unix.SYS_QUOTACTL_FD,
	"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "process_madvise": unix.SYS_PROCESS_MADVISE, "lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE,
}

// kernelRows: calls that only widen what can be attacked.
func kernelRows() []attack {
	var rows []attack
	// Without arguments: the filter answers before the kernel looks at them.
	for _, name := range []string{
		"mount", "umount2", "pivot_root", "chroot", "setns", "fsopen", "fsmount", "fsconfig", "fspick", "open_tree",
		"move_mount", "mount_setattr", "statmount", "listmount", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"userfaultfd", "bpf", "perf_event_open", "keyctl", "add_key", "request_key", "kcmp", "open_by_handle_at",
		"name_to_handle_at", "fanotify_init", "pidfd_getfd", "quotactl", "kexec_load", "init_module", "finit_module",
		"delete_module", "swapon", "swapoff", "reboot", "sethostname", "setdomainname", "settimeofday", "clock_settime",
		"acct", "syslog", "vhangup", "move_pages", "migrate_pages", "ptrace", "process_vm_readv", "process_vm_writev",
		"fanotify_mark", "kexec_file_load", "quotactl_fd", "clock_adjtime", "process_madvise", "lookup_dcookie",
	} {
		rows = append(rows, attack{name: "call " + name, probe: "syscall", args: sysArgs(name), want: "EPERM"})
	}
	for _, c := range []struct {
		name, call string
		args       []int
		want       string
		works      string
	}{
		{"make a user namespace", "unshare", []int{unix.CLONE_NEWUSER}, "EPERM", "ok EINVAL"},
		{"make a mount namespace", "unshare", []int{unix.CLONE_NEWNS}, "EPERM", ""},
		{"make a time namespace", "unshare", []int{unix.CLONE_NEWTIME}, "EPERM", ""},
		{"clone into a user namespace", "clone", []int{unix.CLONE_NEWUSER | int(syscall.SIGCHLD)}, "EPERM", "ok"},
		{"clone3", "clone3", []int{0, 88}, "ENOSYS", "EFAULT EINVAL"},
		{"openat2", "openat2", []int{0, 0, 0, 24}, "ENOSYS", "EFAULT"},
		{"be traced", "ptrace", []int{0}, "EPERM", "ok"},
		{"type into a terminal", "ioctl", []int{0, unix.TIOCSTI}, "EPERM", "ENOTTY"},
		{"type into a terminal by a high bit", "ioctl", []int{0, 1<<32 | unix.TIOCSTI}, "EPERM", "ENOTTY"},
		{"paste into a console", "ioctl", []int{0, 0x541c}, "EPERM", "ENOTTY"},
		{"ask an ordinary ioctl", "ioctl", []int{0, unix.TCGETS}, "ENOTTY", "ENOTTY"},
		{"change the personality", "personality", []int{0x0040000}, "EPERM", "ok"},
		{"ask the personality", "personality", []int{0xffffffff}, "ok", "ok"},
		{"open a vsock", "socket", []int{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT", ""},
		{"open a vsock by a high bit", "socket", []int{1<<32 | unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "EAFNOSUPPORT", ""},
		{"open a packet socket", "socket", []int{unix.AF_PACKET, unix.SOCK_RAW, 0}, "EAFNOSUPPORT", "ok EPERM"},
		{"open a crypto socket", "socket", []int{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "EAFNOSUPPORT", ""},
		{"open a key socket", "socket", []int{unix.AF_KEY, unix.SOCK_RAW, 2}, "EAFNOSUPPORT", ""},
		{"open a raw socket", "socket", []int{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "EPERM", "ok EPERM"},
		{"open audit netlink", "socket", []int{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, "EAFNOSUPPORT", "ok EPROTONOSUPPORT"},
		{"open filter netlink", "socket", []int{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "EAFNOSUPPORT", "ok EPROTONOSUPPORT"},
		{"open route netlink", "socket", []int{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, "ok", "ok"},
		{"open a unix socket", "socket", []int{unix.AF_UNIX, unix.SOCK_STREAM, 0}, "ok", "ok"},
	} {
		rows = append(rows, attack{name: c.name, probe: "syscall", args: sysArgs(c.call, c.args...), want: c.want, works: c.works})
	}
	if runtime.GOARCH == "amd64" {
		rows = append(rows,
			attack{name: "call by the x32 table", probe: "syscall", args: []string{strconv.Itoa(0x40000000 | unix.SYS_SOCKET), "1", "1"}, want: "ENOSYS"},
			attack{name: "call by the 32-bit gate", probe: "execute", args: []string{"/opt/gate"}, want: gateOutcome(), spec: gate})
	}
	rows = append(rows, attack{name: "trace in the debug preset", probe: "syscall", args: sysArgs("ptrace", 0), want: "ok",
		spec: func(s *sandbox.Spec) { s.Preset = sandbox.PresetDebug }})
	rows = append(rows, attack{name: "clone a user namespace in the browser preset", probe: "syscall",
		args: sysArgs("clone", unix.CLONE_NEWUSER|int(syscall.SIGCHLD)), want: "ok",
		spec: func(s *sandbox.Spec) { s.Preset = sandbox.PresetBrowser }})
	rows = append(rows, attack{name: "mount in the browser preset", probe: "syscall", args: sysArgs("mount"), want: "EPERM",
		spec: func(s *sandbox.Spec) { s.Preset = sandbox.PresetBrowser }})
	return withFeature(sandbox.FeatureSyscalls, rows)
}

func gate(s *sandbox.Spec) {
	s.Files = []sandbox.File{{Path: "/opt/gate", Data: gateProgram(), Mode: 0o755}}
}

func ownerOf(st os.FileInfo) int {
	if st == nil {
		return -1
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}
