package sandbox

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// A jail is what is known of a Process: the leader of its session, and
// through it whatever descends from it. There is nothing that a process
// cannot leave by a session of its own and the end of its parent.
type jail struct {
	made    string // the private directory, as it was made
	private string // the same, resolved
	leader  int
}

// terminate asks the agent's process group to end.
func (j *jail) terminate() { _ = syscall.Kill(-j.leader, syscall.SIGTERM) }

// kill ends everything inside that can be found. Its errors mean that there
// is nothing to kill.
func (j *jail) kill() {
	// A stopped process cannot fork while this looks for the others.
	for range 10 {
		found := j.members()
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if len(j.members()) == len(found) {
			break
		}
	}
	for _, pid := range j.members() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// halted counts the processes inside that a signal has stopped.
func (j *jail) halted() (n int) {
	const stopped = 4 // SSTOP of sys/proc.h
	for _, pid := range j.members() {
		if p, err := unix.SysctlKinfoProc("kern.proc.pid", pid); err == nil && p.Proc.P_stat == stopped {
			n++
		}
	}
	return n
}

// end kills what the agent left.
func (j *jail) end() { j.kill() }

// members lists the leader's session and its descendants. A number
// that now belongs to another process is not in that session.
func (j *jail) members() []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	in := map[int32]bool{}
	for grown := true; grown; {
		grown = false
		for i := range all {
			p := &all[i]
			if in[p.Proc.P_pid] {
				continue
			}
			session, err := unix.Getsid(int(p.Proc.P_pid))
			if in[p.Eproc.Ppid] || (err == nil && session == j.leader) {
				in[p.Proc.P_pid], grown = true, true
			}
		}
	}
	var pids []int
	for pid := range in {
		pids = append(pids, int(pid))
	}
	return pids
}
