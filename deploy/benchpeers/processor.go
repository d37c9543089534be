package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// spent is the processor time of a server and of its clients, which are this process.
// Unlike a rate it says the same on a machine that does other work.
type spent struct{ server, clients time.Duration }

func (s spent) since(t spent) spent { return spent{s.server - t.server, s.clients - t.clients} }

// spent asks the kernel, for the server with all processes that it has started.
func (p *process) spent() spent {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // fails for another argument only
	return spent{ofTree(p.cmd.Process.Pid), time.Duration(own.Utime.Nano() + own.Stime.Nano())}
}

// tick is the unit of the times in /proc/PID/stat; see proc_pid_stat(5). It is the same
// on every architecture that Go knows.
const tick = 10 * time.Millisecond

// ofTree is the time of a process and of those below it, also of those that have ended.
func ofTree(root int) time.Duration {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // a constant pattern
	times, parents := map[int]time.Duration{}, map[int]int{}
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended, and its parent has its time
		}
		// The name of the program may have spaces and brackets.
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, ticks := range fields[11:15] { // its own and its children's, of the user and of the system
			n, _ := strconv.Atoi(ticks)
			times[pid] += time.Duration(n) * tick
		}
	}
	var sum time.Duration
	for pid, t := range times {
		for up := pid; up > 1; up = parents[up] {
			if up == root {
				sum += t
				break
			}
		}
	}
	return sum
}
