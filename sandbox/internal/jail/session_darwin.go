package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Session is the leader of a session, and through it whatever descends from it.
// There is nothing that a process cannot leave by a session of its own and the end
// of its parent.
type Session struct {
	made    string // the private directory, as it was made
	private string // the same, resolved
	leader  int    // 0 before Begin
}

// Terminate asks the agent's process group to end.
func (j *Session) Terminate() { _ = syscall.Kill(-j.leader, syscall.SIGTERM) }

// Kill ends everything inside that can be found. Its errors mean that there
// is nothing to kill.
func (j *Session) Kill() {
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

// Halted counts the processes inside that a signal has stopped.
func (j *Session) Halted() (n int) {
	const stopped = 4 // SSTOP of sys/proc.h
	for _, pid := range j.members() {
		if p, err := unix.SysctlKinfoProc("kern.proc.pid", pid); err == nil && p.Proc.P_stat == stopped {
			n++
		}
	}
	return n
}

// End kills what the agent left.
func (j *Session) End() { j.Kill() }

// members lists the leader's session and its descendants. A number
// that now belongs to another process is not in that session.
func (j *Session) members() []int {
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

// Begin starts the mechanism's program, in whose arguments and environment the mark is
// completed with the private directory.
func (j *Session) Begin(cmd *exec.Cmd, mark string) error {
	complete := func(list []string) []string {
		out := []string{} // nil would mean our own environment
		for _, s := range list {
			out = append(out, strings.ReplaceAll(s, mark, j.private))
		}
		return out
	}
	cmd.Args, cmd.Env = complete(cmd.Args), complete(cmd.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	j.leader = cmd.Process.Pid
	return nil
}

// MakePrivate makes the directory for temporary files, and for a workspace
// and home that the Spec does not name.
func (j *Session) MakePrivate() error {
	dir, err := os.MkdirTemp("", "penstock-jail-")
	if err != nil {
		return err
	}
	j.made = dir
	j.private, err = filepath.EvalSymlinks(dir)
	return err
}

// Remove takes the private directory away, whatever modes the jail gave to
// what is in it.
func (j *Session) Remove() error {
	if j.made == "" {
		return nil
	}
	err := os.RemoveAll(j.made)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(j.private, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) // before its entries are read
		}
		return nil
	})
	return os.RemoveAll(j.made)
}
