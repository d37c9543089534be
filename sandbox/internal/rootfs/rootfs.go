// Package rootfs holds what is the same in the root file system of every jail on
// Linux, whatever makes the jail: the agent's user, names, devices, and what of
// /proc no agent may see or change.
//
// Each list stands here only: a backend with a list of its own would miss what is
// added to this one. The first program of a jail imports the package, so it does
// without package fmt and the like, which would make jails start later.
package rootfs

import "strconv"

// AgentID is the agent's user and group inside: an ordinary user's, because agents
// refuse to run as root.
const AgentID = 1000

// Hosts is /etc/hosts of a jail with a network of its own. Without names for the
// loopback, servers that listen on localhost fail.
const Hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 job\n"

// Passwd returns /etc/passwd.
func Passwd(uid, gid int, home string) []byte {
	return []byte("root:x:0:0:root:/root:/bin/sh\n" +
		"agent:x:" + strconv.Itoa(uid) + ":" + strconv.Itoa(gid) + ":agent:" + home + ":/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")
}

// Group returns /etc/group.
func Group(gid int) []byte {
	return []byte("root:x:0:\nagent:x:" + strconv.Itoa(gid) + ":\nnogroup:x:65534:\n")
}

// Devices and DeviceLinks, names and texts of symbolic links, are what a jail has
// in /dev: nothing of the machine.
var (
	Devices     = []string{"null", "zero", "full", "random", "urandom", "tty"}
	DeviceLinks = [][2]string{
		{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"core", "/proc/kcore"},
		{"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	}
)

// Files of /proc that more than one list names.
const (
	Keys  = "/proc/keys"          // the keyring's, which its owner may list
	SysRq = "/proc/sysrq-trigger" // commands to the kernel
)

// Hidden are files of /proc that tell about the machine.
var Hidden = []string{"/proc/cmdline", "/proc/kallsyms"}

// The owner of /proc's files outside is root. Where the agent is root outside too,
// it could read and write these without any privilege.
var (
	HiddenFromRoot = []string{
		Keys, "/proc/timer_list", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo",
		"/proc/vmallocinfo",
	}
	ReadOnlyToRoot = []string{"/proc/sys", SysRq, "/proc/fs", "/proc/acpi", "/proc/scsi"}
)
