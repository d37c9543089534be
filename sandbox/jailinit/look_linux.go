package jailinit

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// look is the whole life of this program under Look.
func look(name string) {
	status := statusFields()
	capabilities := "0"
	if len(bytes.Trim([]byte(status["CapPrm"]+status["CapEff"]), "0")) > 0 {
		capabilities = status["CapEff"]
	}
	for _, s := range [][2]string{
		{"program", program(name)},
		{"uid", strconv.Itoa(os.Getuid())},
		{"first", strconv.Itoa(os.Getppid())},
		{"filter", status["Seccomp"]},
		{"gain", status["NoNewPrivs"]},
		{"capabilities", capabilities},
		{"root", rootState()},
		{"temporary", temporaryState()},
		{"interfaces", interfaceNames()},
		{"ipc", sharedMemory()},
		{"landlock", landlockVersion()},
	} {
		os.Stdout.WriteString(s[0] + "=" + s[1] + "\n")
	}
	syscall.Exit(0)
}

func program(name string) string {
	for _, p := range candidates(name, os.Environ()) {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && syscall.Access(p, executable) == nil {
			return p
		}
	}
	return ""
}

func statusFields() map[string]string {
	status := map[string]string{}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return status // what is not seen does not hold
	}
	for _, line := range lines(b) {
		key, value, _ := cut(line, ":")
		status[key] = trimSpace(value)
	}
	return status
}

func rootState() string {
	var st syscall.Statfs_t
	if syscall.Statfs("/", &st) == nil && st.Flags&statReadOnly != 0 {
		return "read-only"
	}
	return "writable"
}

func temporaryState() string {
	var st syscall.Statfs_t
	if syscall.Statfs("/tmp", &st) == nil && st.Type == tmpfsMagic {
		return "memory"
	}
	return "disk"
}

// interfaceNames reads a table of the kernel: package net is not for a program
// that lives two milliseconds.
func interfaceNames() string {
	b, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return "unknown"
	}
	var names []string
	for _, line := range lines(b) {
		if name, _, ok := cut(line, ":"); ok {
			names = append(names, trimSpace(name))
		}
	}
	return join(names, ",")
}

func sharedMemory() string {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err == nil && bytes.Count(b, []byte("\n")) == 1 { // the heading
		return "empty"
	}
	return "unknown"
}

func landlockVersion() string {
	version, _, errno := syscall.Syscall(sysLandlockCreate, 0, 0, landlockVersionFlag)
	if errno != 0 {
		return ""
	}
	return strconv.Itoa(int(version))
}
