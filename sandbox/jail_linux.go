package sandbox

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/cover"
	"github.com/penstock-run/penstock/sandbox/internal/usage"
	"golang.org/x/sys/unix"
)

// A jail is the kernel's side of a Process. Processes are held by
// descriptor where possible: a number may belong to another process by the time
// it is used.
type jail struct {
	command *Command
	token   string
	group   *cgroup.Group
	control *net.UnixConn
	service *service        // nil where the jail is not a service's
	silent  chan struct{}   // closed when a supervisor inside has said all
	cover   *cover.Covering // nil where nothing is mounted from outside

	mu       sync.Mutex
	main     *os.Process // guarded by mu; the mechanism's process on the host
	first    int         // guarded by mu; pid 1 inside, whose end is the end of all, or jailinit in a service's jail; -1 if not known
	firstPID int         // guarded by mu; 0 if not known
	agent    int         // guarded by mu; the agent, which leads its process group; -1 if not known
	agentPID int         // guarded by mu
	killed   bool        // guarded by mu; kill was called
	ended    bool        // guarded by mu

	supervised  bool          // guarded by mu; jailinit stays inside and takes requests
	firstIsInit bool          // guarded by mu; first is pid 1 of its namespace, in a service's jail
	account     account       // guarded by mu
	groups      *cgroup.Watch // guarded by mu; the groups of a service's jail

	connector *connector // answers requests from inside; nil without Spec.Dial
}

func groupLimits(l Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, CPUs: l.CPUs, CPUWeight: l.CPUWeight, PIDs: l.PIDs}
}

// prepare makes the command of the mechanism's process.
func (j *jail) prepare(pipes *plumbing, ends *ends) *exec.Cmd {
	meet, files := "", ends.inside
	if j.service != nil {
		meet, files = j.service.rendezvous.dir, nil
	}
	args := complete([][]string{j.command.Args}, j.token, meet)[0]
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
		ExtraFiles:  files,
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
		j.first, j.firstPID = fd, pid
	}
}

// processes returns the number of a process of which all in the jail descend,
// and of one that sees its files, or 0.
func (j *jail) processes() (top, first int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.service != nil {
		return j.firstPID, j.firstPID
	}
	return j.main.Pid, j.firstPID
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

// halted counts the processes inside that a signal has stopped. One that a
// debugger holds is not among them.
func (j *jail) halted() (n int) {
	top, _ := j.processes()
	if top <= 0 {
		return 0 // not known: a service has it
	}
	pids, _ := usage.Below(top)
	for _, pid := range pids {
		if statState(pid) == "T" {
			n++
		}
	}
	return n
}

// terminate asks the agent's process group to end.
func (j *jail) terminate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.supervised {
		// It knows the agent better, and may have rights over it that we lack.
		_, _ = j.control.Write([]byte("terminate"))
		return
	}
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
	j.killed = true
	if j.service != nil {
		_ = j.control.CloseWrite()
		if j.firstIsInit {
			_ = unix.PidfdSendSignal(j.first, unix.SIGKILL, nil, 0)
		}
		close(j.service.killing)
		return
	}
	if j.first >= 0 {
		_ = unix.PidfdSendSignal(j.first, unix.SIGKILL, nil, 0)
	}
	if j.command.Sweep {
		// The supervisor ends what the agent started; it would leave that
		// behind if it were killed first.
		_ = j.control.CloseWrite()
		main := j.main
		time.AfterFunc(supervisorEnd, func() { replaceSupervisor(main) })
		return
	}
	if j.main != nil {
		_ = j.main.Kill()
	}
}

// supervisorEnd is how long a supervisor without a jail around it may take to
// end everything: milliseconds on an idle machine.
const supervisorEnd = 250 * time.Millisecond

// replaceSupervisor does what a supervisor does in the end: the agent is the
// same user, and may have stopped it. It stays stopped meanwhile, so that it
// still gets the orphans, and none of its children gives its number away.
func replaceSupervisor(main *os.Process) {
	for began := time.Now(); time.Since(began) < ownEnd; time.Sleep(time.Millisecond) {
		if main.Signal(unix.SIGSTOP) != nil {
			return // it has ended
		}
		alive := livingChildren(main.Pid)
		if len(alive) == 0 {
			break
		}
		for _, pid := range alive {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	_ = main.Kill()
}

// end waits until nothing inside is alive. The mechanism's process is gone,
// but its exit says only that the agent is.
func (j *jail) end(ctx context.Context) error {
	j.mu.Lock()
	first, agent := j.first, j.agent
	j.first, j.agent, j.ended = -1, -1, true
	j.mu.Unlock()
	if j.service != nil {
		err := j.endService(ctx, first)
		if first >= 0 {
			unix.Close(first)
		}
		return err
	}
	if first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
		wait(first, -1)
		unix.Close(first)
	}
	if agent >= 0 {
		unix.Close(agent)
	}
	j.group.Kill()
	if j.command.Sweep || (first < 0 && j.command.Status) {
		killMarked(j.token)
	}
	if len(j.command.End) > 0 {
		// All of it is dead; a service may keep more, but no process.
		_ = runEnd(context.WithoutCancel(ctx), complete(j.command.End, j.token, ""), j.command.Env)
	}
	return nil
}

// wait returns when the process has ended, or after d unless that is negative,
// and reports whether it has. The kernel lets pid 1 of a namespace end only
// after all others in it.
func wait(pidfd int, d time.Duration) bool {
	for deadline := time.Now().Add(d); ; {
		left := -1
		if d >= 0 {
			left = int(max(0, time.Until(deadline)).Milliseconds())
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, left)
		if n > 0 {
			return true
		}
		if (err != nil && err != unix.EINTR) || left == 0 {
			return false
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

// hello is jailinit's first message.
type hello struct {
	agent      int // jailinit itself where it supervises
	own        int // its number inside, where it supervises
	supervised bool
	sockets    []*os.File
}

// receive reads until the agent is executed, which ends the conversation.
func (p *Process) receive(c *net.UnixConn) (h hello, err error) {
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
		n, oobn, err := untilOver(func() (int, int, error) {
			n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
			return n, oobn, err
		})
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
		word, rest, _ := strings.Cut(string(buf[:n]), "\x00")
		if word == "bind" {
			if err := answerBind(c, p.bind, rest, sockets); err != nil {
				return h, err
			}
			continue
		}
		h.sockets = append(h.sockets, sockets...)
		switch word {
		case "ready":
			ready, h.agent = true, pid
			if err := p.jail.applyCover(); err != nil {
				return h, err
			}
		case "running":
			h.agent, h.own, h.supervised = pid, atoi(rest), true
			return h, nil
		default:
			return h, initError(rest)
		}
	}
}

// untilOver reads once more where a socket that keeps messages apart seems to be
// over. The kernel says so, once, also where a last message came and the socket
// was closed between its look for the one and for the other.
func untilOver(read func() (n, oobn int, err error)) (n, oobn int, err error) {
	if n, oobn, err = read(); n == 0 && !os.IsTimeout(err) {
		n, oobn, err = read()
	}
	return n, oobn, err
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
