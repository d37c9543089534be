package sandboxtest

import (
	"runtime"
	"strconv"

	"github.com/penstock-run/penstock/sandbox"
	"golang.org/x/sys/unix"
)

// onlyAMD64 are calls that no other machine has.
var onlyAMD64 = map[string]int{
	"modify_ldt": 154, "uselib": 134, "ustat": 136, "sysfs": 139, "iopl": 172, "ioperm": 173, "nfsservctl": 180,
}

// namespaceRows: ways to a namespace in which the agent would have every
// privilege, which is where most holes of the kernel begin; and calls of old
// machines.
func namespaceRows() []attack {
	rows := []attack{
		{name: "lift a mask", probe: "unmask", args: []string{"/proc/kallsyms"}, want: "EPERM"},
		{name: "lift a mask in the browser preset", probe: "unmask", args: []string{"/proc/kallsyms"}, want: "EPERM,tried",
			spec: func(s *sandbox.Spec) { s.Preset = sandbox.PresetBrowser }},
		{name: "make a user and a mount namespace", probe: "syscall", args: sysArgs("unshare", unix.CLONE_NEWUSER|unix.CLONE_NEWNS), want: "EPERM"},
	}
	for _, n := range []struct {
		name string
		flag int
	}{{"network", unix.CLONE_NEWNET}, {"process", unix.CLONE_NEWPID}, {"IPC", unix.CLONE_NEWIPC}, {"host name", unix.CLONE_NEWUTS}, {"control group", unix.CLONE_NEWCGROUP}} {
		rows = append(rows, attack{name: "make a namespace of the kind " + n.name, probe: "syscall", args: sysArgs("unshare", n.flag), want: "EPERM"})
	}
	if runtime.GOARCH == "amd64" {
		for name, number := range onlyAMD64 {
			rows = append(rows, attack{name: "call " + name, probe: "syscall", args: []string{strconv.Itoa(number)}, want: "EPERM"})
		}
	}
	return withFeature(sandbox.FeatureSyscalls, rows)
}
