package jail

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/internal/usage"
)

// Activity adds up what the living processes below top have done, with those that
// they have waited for.
func Activity(top int) (cpu time.Duration, io int64) {
	if top <= 0 {
		return 0, 0 // a service has it, out of our sight
	}
	pids, _ := usage.Below(top)
	for _, pid := range pids {
		const first, last, tick = 11, 15, time.Second / 100 // utime to cstime, in USER_HZ, which is 100 wherever Go runs
		if f := token.Stat(pid); len(f) >= last {
			for _, text := range f[first:last] {
				n, _ := strconv.ParseInt(text, 10, 64) // a number
				cpu += time.Duration(n) * tick
			}
		}
		io += transferred(pid)
	}
	return cpu, io
}

// transferred returns the bytes that a process and the children that it waited
// for have read and written. What the kernel reads for a mapped file, such as
// a program, is only in read_bytes. It is 0 where the kernel does not count, or
// does not let this user look.
func transferred(pid int) (sum int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "rchar", "wchar", "read_bytes":
			n, _ := strconv.ParseInt(value, 10, 64) // a number
			sum += n
		}
	}
	return sum
}

// Halted counts the processes below top that a signal has stopped. One that a
// debugger holds is not among them.
func Halted(top int) (n int) {
	if top <= 0 {
		return 0 // not known: a service has it
	}
	pids, _ := usage.Below(top)
	for _, pid := range pids {
		if token.State(pid) == "T" {
			n++
		}
	}
	return n
}
