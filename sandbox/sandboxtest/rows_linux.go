package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// attacks returns the table for a host.
func attacks(h *host) []attack {
	return slices.Concat(readRows(h), personalRows(h), descriptorRows(h), writeRows(h), viewRows(h), processRows(h), reachRows(h),
		ipcRows(h), socketRows(h), networkRows(h), kernelRows(), namespaceRows(), resourceRows(), limitRows())
}

// readRows: data of the host.
func readRows(h *host) []attack {
	file := filepath.Join(h.dir, "secret.txt")
	rows := []attack{
		{name: "read a file of the host", probe: "read", args: []string{file}, want: "ENOENT", works: "ok"},
		{name: "read through a link in the workspace", probe: "read", args: []string{"link"}, want: "ENOENT", works: "ok"},
		{name: "read the shadow file", probe: "read", args: []string{"/etc/shadow"}, image: "-", want: "ENOENT", works: "ok EACCES"},
		{name: "read the machine id", probe: "read", args: []string{"/etc/machine-id"}, want: "ENOENT"},
		{name: "list the home of root", probe: "list", args: []string{"/root"}, image: "-", want: "ENOENT"},
		{name: "list homes", probe: "list", args: []string{"/home"}, want: "[agent]"},
		{name: "list a private home", probe: "list", args: []string{"/home/agent"}, want: "[]"},
		{name: "list temporary files", probe: "list", args: []string{"/tmp"}, want: "[]", works: "[*"},
		{name: "list what runs", probe: "list", args: []string{"/run"}, want: "[]", works: "[*"},
		{name: "list var", probe: "list", args: []string{"/var"}, image: "-", want: "[tmp]", works: "[*"},
		{name: "list sys", probe: "list", args: []string{"/sys"}, image: "ENOENT []", want: "ENOENT", works: "[*"},
		{name: "list the boot files", probe: "list", args: []string{"/boot"}, image: "-", want: "ENOENT"},
		{name: "find a user of the host", probe: "contains", args: []string{h.user, "/etc/passwd", "/etc/group"}, want: "absent", works: "found"},
		{name: "inherit the environment", probe: "env", args: []string{"API_SECRET"}, want: "unset", works: "ok"},
		{name: "inherit an agent socket", probe: "env", args: []string{"SSH_AUTH_SOCK"}, want: "unset"},
		{name: "only the given environment", probe: "environment", want: "A=1,B=x=y",
			spec: func(s *sandbox.Spec) { s.Env = []string{"B=x=y", "A=1"} }},
		{name: "learn the host's name", probe: "hostname", want: "job"},
		{name: "climb out of the root", probe: "read", args: []string{strings.Repeat("../", 40) + file}, want: "ENOENT", works: "ok"},
	}
	for _, p := range []string{"cmdline", "kallsyms", "kcore", "keys", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "timer_list", "vmallocinfo"} {
		rows = append(rows, attack{name: "read proc " + p, probe: "read", args: []string{"/proc/" + p}, want: "EACCES EPERM ENOENT empty"})
	}
	return withFeature(sandbox.FeatureFiles, rows)
}

// descriptorRows: what a careless parent leaves open.
func descriptorRows(h *host) []attack {
	return withFeature(sandbox.FeatureKill, []attack{
		{name: "use an inherited descriptor", probe: "descriptor", args: []string{strconv.Itoa(h.fd)}, want: "EBADF", works: "ok"},
		{name: "open below an inherited directory", probe: "descriptor-at", args: []string{strconv.Itoa(h.dirFD), "secret.txt"}, want: "EBADF", works: "ok"},
		{name: "find the control socket", probe: "descriptor", args: []string{"4"}, want: "EBADF"},
		{name: "find the configuration", probe: "descriptor", args: []string{"5"}, want: "EBADF"},
		{name: "write to blocking output", probe: "blocking", want: "blocking"},
	})
}

// writeRows: files of the host, and what the host would find later.
func writeRows(h *host) []attack {
	outside := filepath.Join(h.dir, "written")
	absent := func(t *testing.T, _ string) {
		if _, err := os.Lstat(outside); err == nil {
			t.Errorf("%s exists", outside)
			os.Remove(outside)
		}
	}
	rows := []attack{
		{name: "write a file of the host", probe: "write", args: []string{outside}, want: "ENOENT", after: absent},
		{name: "write through a link in the workspace", probe: "write", args: []string{"link"}, want: "ENOENT", after: func(t *testing.T, _ string) {
			if b, err := os.ReadFile(filepath.Join(h.dir, "secret.txt")); err != nil || string(b) != secret {
				t.Errorf("the file is now %q, err %v", b, err)
			}
		}},
		{name: "write temporary files of the host", probe: "write", args: []string{"/tmp/penstock-written"}, want: "ok", after: func(t *testing.T, _ string) {
			if _, err := os.Lstat("/tmp/penstock-written"); err == nil {
				t.Error("/tmp of the host was written")
			}
		}},
		{name: "write a program", probe: "write", args: []string{"/usr/bin/penstock-written"}, want: "EROFS EACCES"},
		{name: "write the root", probe: "write", args: []string{"/written"}, want: "EROFS EACCES"},
		{name: "write etc", probe: "write", args: []string{"/etc/written"}, want: "EROFS EACCES"},
		{name: "write a directory of the host in etc", probe: "write", args: []string{"/etc/alternatives/written"}, want: "EROFS EACCES ENOENT"},
		{name: "change the users", probe: "open-write", args: []string{"/etc/passwd"}, want: "EROFS EACCES"},
		{name: "change the first program", probe: "open-write", args: []string{"/jail/init"}, want: "EROFS EACCES ETXTBSY"},
		{name: "link a file of the host", probe: "link", args: []string{filepath.Join(h.dir, "secret.txt"), "hard"}, want: "ENOENT"},
		{name: "link a program into the workspace", probe: "link", args: []string{"/usr/bin/env", "hard"}, want: "EXDEV EACCES EPERM"},
		{name: "move a program", probe: "rename", args: []string{"/usr/bin/env", "/usr/bin/env2"}, want: "EROFS EACCES"},
		// One that nothing executes: with a program that runs, the kernel sees that first.
		{name: "reopen a program for writing", probe: "reopen", args: []string{"/usr/bin/tac"}, want: "EROFS EACCES", works: "ok EACCES ETXTBSY"},
		{name: "write where it was made read-only", probe: "write", args: []string{"/workspace/f"}, want: "EROFS EACCES",
			spec: func(s *sandbox.Spec) { s.WorkspaceReadOnly = true }},
		{name: "write a mount that is not writable", probe: "write", args: []string{"/opt/data/f"}, want: "EROFS EACCES",
			spec: func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: h.dir, Target: "/opt/data"}} }},
		{name: "write a file of the Spec", probe: "open-write", args: []string{"/etc/own"}, want: "EROFS EACCES",
			spec: func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/own", Data: []byte("x")}} }},
		{name: "write the workspace", probe: "write", args: []string{"/workspace/f"}, want: "ok", after: func(t *testing.T, ws string) {
			st, err := os.Stat(filepath.Join(ws, "f"))
			if err != nil || ownerOf(st) != os.Geteuid() {
				t.Errorf("the file belongs to %d, err %v", ownerOf(st), err)
			}
		}},
		{name: "write a home of the host", probe: "write", args: []string{"/home/agent/f"}, want: "ok",
			spec: func(s *sandbox.Spec) { s.Home = s.Workspace },
			after: func(t *testing.T, ws string) {
				if _, err := os.Stat(filepath.Join(ws, "f")); err != nil {
					t.Error(err)
				}
			}},
		{name: "leave nothing in the workspace", probe: "list", args: []string{"/workspace"}, want: "[link]", after: func(t *testing.T, ws string) {
			if got, _ := list([]string{ws}); got != "[link]" {
				t.Errorf("the workspace holds %s afterwards", got)
			}
		}},
		{name: "make a device", probe: "mknod", want: "EPERM"},
		{name: "give a file to root", probe: "chown", want: "EPERM EINVAL"},
		{name: "make a set-uid file at creation", probe: "create-mode", args: []string{"p", "4755"}, want: "EPERM", works: "ok"},
		{name: "make an ordinary file", probe: "create-mode", args: []string{"p", "0755"}, want: "ok", works: "ok"},
	}
	for _, call := range []string{"fchmodat", "fchmod", "fchmodat2", "mknod"} {
		rows = append(rows, attack{name: "make a set-uid file with " + call, probe: "chmod", args: []string{call}, want: "EPERM ENOSYS EOPNOTSUPP", works: "ok EOPNOTSUPP"})
	}
	for _, p := range []string{"sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/vm/drop_caches", "sysrq-trigger", "sys/kernel/hostname"} {
		rows = append(rows, attack{name: "open for writing " + filepath.Base(p), probe: "open-write", args: []string{"/proc/" + p}, want: "EROFS EACCES ENOENT"})
	}
	return withFeature(sandbox.FeatureFiles, rows)
}

// viewRows check what a jail shows on purpose.
func viewRows(h *host) []attack {
	return withFeature(sandbox.FeatureFiles, []attack{
		{name: "be an ordinary user", probe: "uid", want: "1000:1000"},
		{name: "have no more groups", probe: "groups", want: "0 1", spec: nil},
		{name: "write only where it is meant", probe: "mounts",
			image: "-",
			want: "/dev/full,/dev/null,/dev/pts,/dev/random,/dev/shm,/dev/tty,/dev/urandom,/dev/zero,/home/agent,/proc,/run,/tmp,/workspace " +
				"/dev/pts,/dev/shm,/home/agent,/proc,/run,/tmp,/workspace"},
		{name: "see a mount", probe: "read", args: []string{"/opt/data/secret.txt"}, want: "ok",
			spec: func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: h.dir, Target: "/opt/data"}} }},
		{name: "see a file of the Spec", probe: "contains", args: []string{"hello", "/opt/own"}, want: "found",
			spec: func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/opt/own", Data: []byte("hello")}} }},
		{name: "execute a file of the Spec", probe: "execute", args: []string{"/opt/own"}, want: "exit-7",
			spec: func(s *sandbox.Spec) {
				s.Files = []sandbox.File{{Path: "/opt/own", Data: []byte("#!/bin/sh\nexit 7\n"), Mode: 0o755}}
			}},
	})
}

// processRows: other processes and terminals.
func processRows(h *host) []attack {
	return slices.Concat(withFeature(sandbox.FeatureProcesses, []attack{
		{name: "find the secret in processes", probe: "contains",
			args: []string{secret, "/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"}, want: "absent", works: "found"},
		{name: "see processes", probe: "processes", want: "few", works: "many"},
		{name: "signal a process", probe: "signal", args: []string{strconv.Itoa(h.process)}, want: "ESRCH", works: "ok"},
		{name: "open a terminal", probe: "terminal", want: "ENXIO ENOENT"},
	}), withFeature(sandbox.FeaturePrivileges, []attack{
		{name: "gain privileges by a program", probe: "nnp", want: "1"},
		{name: "lift a limit of files", probe: "limit", args: []string{"7"}, want: "EPERM"},
		{name: "lift a limit of core dumps", probe: "limit", args: []string{"4"}, want: "EPERM"},
	}))
}

// ipcRows: shared memory and queues.
func ipcRows(h *host) []attack {
	return withFeature(sandbox.FeatureIPC, []attack{
		{name: "attach shared memory", probe: "syscall", args: sysArgs("shmget", h.shmKey, 4096, 0), want: "ENOENT", works: "ok"},
		{name: "open a message queue", probe: "queue", args: []string{h.queue}, want: "ENOENT ENOSYS", works: "ok"},
		{name: "read shared memory of the host", probe: "read", args: []string{h.shmFile}, want: "ENOENT", works: "ok"},
	})
}

// socketRows: services of the host that listen on names.
func socketRows(h *host) []attack {
	return slices.Concat(withFeature(sandbox.FeatureFiles, []attack{
		{name: "connect to a unix socket", probe: "connect", args: []string{"unix", h.stream}, want: "ENOENT", works: "ok"},
		{name: "send from a retargeted pair", probe: "datagram", args: []string{h.datagram}, want: "ENOENT", works: "ok"},
	}), withFeature(sandbox.FeatureNetwork, []attack{
		{name: "connect to an abstract socket", probe: "connect", args: []string{"unix", h.abstract}, want: "ECONNREFUSED EPERM", works: "ok"},
	}))
}

// networkRows: everything that has an address.
func networkRows(h *host) []attack {
	rows := []attack{
		{name: "connect to the host's loopback", probe: "connect", args: []string{"tcp", h.port4}, want: "ECONNREFUSED", works: "ok"},
		{name: "list interfaces", probe: "interfaces", want: "lo"},
		{name: "listen for the outside", probe: "listen", args: []string{"0.0.0.0:62017"}, want: "listening", during: func(t *testing.T, _ *sandbox.Process) {
			if err := dialHost("62017"); err == nil {
				t.Error("a listener inside can be reached from the host")
			}
		}},
	}
	if h.port6 != "" {
		rows = append(rows, attack{name: "connect to the host's loopback by IPv6", probe: "connect",
			args: []string{"tcp", h.port6}, want: "ECONNREFUSED EADDRNOTAVAIL ENETUNREACH EAFNOSUPPORT", works: "ok"})
	}
	for name, address := range map[string]string{
		"the internet": "203.0.113.10:80", "the internet by IPv6": "[2001:db8::10]:80", "metadata": "169.254.169.254:80",
		"a private network": "10.77.0.5:80", "multicast": "224.0.0.251:5353",
	} {
		rows = append(rows, attack{name: "connect to " + name, probe: "connect", args: []string{"tcp", address}, want: "ENETUNREACH EADDRNOTAVAIL"})
	}
	rows = append(rows, attack{name: "send to a name server", probe: "connect", args: []string{"udp", "192.0.2.53:53"}, want: "ENETUNREACH"})
	gate := slices.Clone(rows[:2])
	for i := range gate {
		gate[i].name += " with a gate"
		gate[i].spec = func(s *sandbox.Spec) {
			s.Network, s.Listen = sandbox.NetworkGate, []string{"127.0.0.1:38128"}
		}
	}
	return withFeature(sandbox.FeatureNetwork, append(rows, gate...))
}

// resourceRows: more than its share.
func resourceRows() []attack {
	small := func(s *sandbox.Spec) { s.Limits.TmpSize, s.Limits.ShmSize = 4<<20, 4<<20 }
	mib := strconv.Itoa(8 << 20)
	daemon := strconv.Itoa(90_000_000 + os.Getpid()) // seconds, and what finds it among processes
	rows := withFeature(sandbox.FeatureTemporary, []attack{
		{name: "fill temporary files", probe: "fill", args: []string{"/tmp/f", mib}, want: "ENOSPC", spec: small},
		{name: "fill shared memory", probe: "fill", args: []string{"/dev/shm/f", mib}, want: "ENOSPC", spec: small},
		{name: "fill a private home", probe: "fill", args: []string{"/home/agent/f", mib}, want: "ENOSPC", spec: small},
		{name: "fill a private workspace", probe: "fill", args: []string{"/workspace/f", mib}, want: "ENOSPC",
			spec: func(s *sandbox.Spec) { small(s); s.Workspace = "" }},
		{name: "fill what runs", probe: "fill", args: []string{"/run/f", strconv.Itoa(32 << 20)}, want: "ENOSPC"},
		{name: "fill the devices", probe: "fill", args: []string{"/dev/f", mib}, want: "EROFS EACCES"},
	})
	return append(rows,
		attack{name: "fork without end", feature: sandbox.FeaturePIDs, probe: "fork", args: []string{"100"}, want: "EAGAIN", works: "ok",
			spec: func(s *sandbox.Spec) { s.Limits.PIDs = 64 }},
		attack{name: "use all processors", feature: sandbox.FeatureCPU, probe: "cpu", want: "limited",
			spec: func(s *sandbox.Spec) { s.Limits.CPUs = 0.2 }},
		attack{name: "make an endless sparse file", feature: sandbox.FeatureFileSize, probe: "sparse", want: "EFBIG", works: "ok EFBIG"},
		attack{name: "write an endless file", feature: sandbox.FeatureFileSize, probe: "fill", args: []string{"f", mib},
			spec: func(s *sandbox.Spec) { s.Limits.FileSize = 1 << 20 }, want: "EFBIG", works: "ok"},
		attack{name: "open files without end", feature: sandbox.FeatureOpenFiles, probe: "files", args: []string{"200"}, want: "EMFILE", works: "ok",
			spec: func(s *sandbox.Spec) { s.Limits.OpenFiles = 64 }},
		attack{name: "keep running", feature: sandbox.FeatureKill, probe: "sleep",
			spec: func(s *sandbox.Spec) { s.Args = []string{"/bin/sh", "-c", "setsid sleep " + daemon + " & exit 3"} },
			exit: func(t *testing.T, e sandbox.Exit) {
				if e.Code != 3 || e.Ended.Sub(e.Started) > time.Hour { // the daemon would sleep for years
					t.Errorf("got %v after %v", e, e.Ended.Sub(e.Started))
				}
				if found, _ := contains([]string{daemon, "/proc/[0-9]*/cmdline"}); found != "absent" {
					t.Error("a daemon survived")
				}
			}})
}

func withFeature(f sandbox.Feature, rows []attack) []attack {
	for i := range rows {
		rows[i].feature = f
	}
	return rows
}

func sysArgs(name string, args ...int) []string {
	n, ok := callNumbers[name]
	if !ok {
		panic("no number for " + name)
	}
	s := []string{strconv.Itoa(n)}
	for _, a := range args {
		s = append(s, fmt.Sprintf("%#x", uint64(a)))
	}
	return s
}
