package sandbox

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"golang.org/x/sys/unix"
)

// A jail is what the kernel knows of a Process. Processes are held by
// descriptor where possible: a number may belong to somebody else by the time
// it is used.
type jail struct {
	command *Command
	token   string
	group   *cgroup.Group
	control *net.UnixConn

	mu       sync.Mutex
	main     *os.Process // guarded by mu; the mechanism's process on the host
	first    int         // guarded by mu; pid 1 inside, whose end is the end of all; -1 if there is none
	agent    int         // guarded by mu; the agent, which leads its process group; -1 if not known
	agentPID int         // guarded by mu
	ended    bool        // guarded by mu
}

func groupLimits(l Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, CPUs: l.CPUs, PIDs: l.PIDs}
}

// prepare makes the command of the mechanism's process.
func (j *jail) prepare(pipes *plumbing, ends *ends) *exec.Cmd {
	args := append([]string(nil), j.command.Args...)
	for i, a := range args {
		if a == Mark {
			args[i] += j.token
		}
	}
	dir := j.command.Dir
	if dir == "" {
		dir = "/"
	}
	env := j.command.Env
	if env == nil {
		env = []string{} // nil would mean our own
	}
	cmd := &exec.Cmd{
		Path: j.command.Path, Args: args, Env: env, Dir: dir,
		Stdin: pipes.inside[0], Stdout: pipes.inside[1], Stderr: pipes.inside[2],
		ExtraFiles:  ends.inside,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if groups, err := os.Getgroups(); os.Geteuid() == 0 && (err != nil || len(groups) > 0) {
		// Supplementary groups would still open doors of the host's files.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: uint32(os.Getegid())}
	}
	return cmd
}

func (j *jail) setMain(p *os.Process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.main = p
}

// setFirst keeps hold of pid 1 inside. If it is gone already there is
// nothing to hold, and the mechanism will report why.
func (j *jail) setFirst(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil && (j.ended || parent(pid) != j.main.Pid) {
		unix.Close(fd) // not the process that was meant
		return
	}
	if err == nil {
		j.first = fd
	}
}

func (j *jail) setAgent(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pid <= 0 || j.ended {
		return
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		j.agent, j.agentPID = fd, pid
	}
}

// terminate asks the agent's process group to end.
func (j *jail) terminate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.agent < 0 {
		return
	}
	const processGroup = 4 // PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9
	err := unix.PidfdSendSignal(j.agent, unix.SIGTERM, nil, processGroup)
	if err == unix.EINVAL && unix.PidfdSendSignal(j.agent, 0, nil, 0) == nil {
		_ = unix.Kill(-j.agentPID, unix.SIGTERM)
	}
}

// kill begins the end of everything inside. Its errors mean that there is
// nothing to kill.
func (j *jail) kill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	if j.first >= 0 {
		_ = unix.PidfdSendSignal(j.first, unix.SIGKILL, nil, 0)
	}
	if j.command.Sweep {
		// The supervisor ends what the agent started; it would leave that
		// behind if it were killed first.
		_ = j.control.CloseWrite()
		return
	}
	if j.main != nil {
		_ = j.main.Kill()
	}
}

// end waits until nothing inside is alive. The mechanism's process is gone,
// but its exit says only that the agent is.
func (j *jail) end() {
	j.mu.Lock()
	first, agent := j.first, j.agent
	j.first, j.agent, j.ended = -1, -1, true
	j.mu.Unlock()
	if first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
		wait(first)
		unix.Close(first)
	}
	if agent >= 0 {
		unix.Close(agent)
	}
	j.group.Kill()
	if j.command.Sweep || (first < 0 && j.command.Status) {
		killMarked(j.token)
	}
}

// wait returns when the process has ended. The kernel lets pid 1 of a
// namespace end only after all others in it.
func wait(pidfd int) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if n > 0 || (err != nil && err != unix.EINTR) {
			return
		}
	}
}

func parent(pid int) int {
	f := statFields(pid)
	if len(f) < 2 {
		return 0
	}
	return atoi(f[1])
}

// hello is what jailinit says.
type hello struct {
	agent   int
	sockets []*os.File
}

// receive reads until the agent is executed, which ends the conversation.
func receive(c *net.UnixConn) (h hello, err error) {
	defer func() {
		if err != nil {
			for _, f := range h.sockets {
				f.Close()
			}
		}
	}()
	ready := false
	buf, oob := make([]byte, 8192), make([]byte, 1024)
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
		if n == 0 && !os.IsTimeout(err) {
			if !ready {
				return h, errNoInit
			}
			return h, nil
		}
		if err != nil {
			return h, err
		}
		pid, sockets := ancillary(oob[:oobn])
		h.sockets = append(h.sockets, sockets...)
		word, rest, _ := strings.Cut(string(buf[:n]), "\x00")
		switch word {
		case "ready":
			ready, h.agent = true, pid
		case "running":
			h.agent = atoi(rest)
			return h, nil
		default:
			return h, initError(rest)
		}
	}
}

func ancillary(oob []byte) (pid int, files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, nil
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(cred.Pid)
		}
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "listener"))
			}
		}
	}
	return pid, files
}

func initError(s string) error {
	step, rest, _ := strings.Cut(s, "\x00")
	number, detail, _ := strings.Cut(rest, "\x00")
	e := &StartError{Step: step, Detail: detail}
	if n := atoi(number); n != 0 {
		e.Err = syscall.Errno(n)
	}
	return e
}
