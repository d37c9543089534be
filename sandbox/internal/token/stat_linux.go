package token

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat returns the fields of /proc/pid/stat from the state on.
func Stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(b)
	// The name before may hold spaces and parentheses.
	return strings.Fields(s[strings.LastIndex(s, ")")+1:])
}

// State is the letter of a process's state; Z where it has ended.
func State(pid int) string {
	if f := Stat(pid); len(f) > 0 {
		return f[0]
	}
	return "Z"
}

// Parent is the number of a process's parent; 0 where it is not known.
func Parent(pid int) int {
	f := Stat(pid)
	if len(f) < 2 {
		return 0
	}
	return atoi(f[1])
}

// Children lists the processes whose parent is pid, without those that
// only wait for it to ask for them.
func Children(pid int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		n := atoi(e.Name())
		if n <= 0 {
			continue
		}
		if f := Stat(n); len(f) > 1 && f[1] == strconv.Itoa(pid) && f[0] != "Z" {
			found = append(found, n)
		}
	}
	return found
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
