package jail

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/penstock-run/penstock/sandbox/internal/cover"
	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// contained is a jail of [mechanism.Contained].
type contained struct {
	child  *child
	link   *link
	status *os.File
	cover  *cover.Covering // nil where nothing is mounted from outside
	met    chan struct{}   // closed by Meet
	forget func()          // tells the reaper that nothing of the jail is left

	mu       sync.Mutex
	first    int  // guarded by mu; process 1 inside, whose end is the end of all; -1 if not known
	firstPID int  // guarded by mu; 0 if not known
	agent    int  // guarded by mu; the agent, which leads its process group; -1 if not known
	agentPID int  // guarded by mu
	ended    bool // guarded by mu
}

func newContained(m mechanism.Contained, c Config) (_ Jail, step string, err error) {
	j := &contained{met: make(chan struct{}), first: -1, agent: -1}
	if j.forget, err = needReaper(); err != nil {
		return nil, "reaper", err
	}
	if j.child, err = newChild(c); err != nil {
		j.forget()
		return nil, "limits", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Remove())
		}
	}()
	m.Init.Covered = !m.Cover.Empty()
	var status *os.File
	if j.status, status, err = os.Pipe(); err != nil {
		return nil, "start", err
	}
	if j.link, err = newLink(m.Init, c.Bind); err != nil {
		status.Close()
		return nil, "start", err
	}
	j.link.inside = append([]*os.File{status}, j.link.inside...)
	if err := j.link.add(m.Data...); err != nil {
		return nil, "start", err
	}
	if m.Init.Covered {
		j.cover = covering(m.Cover).Begin()
	}
	return j, "", nil
}

func (j *contained) Begin(cmd *exec.Cmd) (clean bool, err error) {
	cmd.ExtraFiles = j.link.inside
	defer j.link.closeInside()
	return j.child.start(cmd)
}

func (j *contained) Meet(ctx context.Context) ([]*os.File, error) {
	defer close(j.met)
	defer j.closeCover()
	defer interrupt(ctx, j.status, j.link.conn)()
	var status struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(j.status).Decode(&status); err != nil || status.PID <= 0 {
		return nil, errors.New("the jail was not made")
	}
	j.holdFirst(status.PID)
	h, err := j.link.receive(j.applyCover)
	if err != nil {
		return nil, err
	}
	if h.stays {
		h.close()
		return nil, errors.New("the first program inside stays, and the mechanism did not ask it to")
	}
	j.holdAgent(h.pid)
	return h.sockets, nil
}

// holdFirst keeps hold of process 1 inside. If it is gone already there is
// nothing to hold, and the mechanism will report why.
func (j *contained) holdFirst(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil && (j.ended || token.Parent(pid) != j.child.pid()) {
		unix.Close(fd) // not the process that was meant
		return
	}
	if err == nil {
		j.first, j.firstPID = fd, pid
	}
}

func (j *contained) holdAgent(pid int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pid <= 0 || j.ended {
		return
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		j.agent, j.agentPID = fd, pid
	}
}

func (j *contained) Terminate() {
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

// Kill's errors mean that there is nothing to kill.
func (j *contained) Kill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	if j.first >= 0 {
		_ = unix.PidfdSendSignal(j.first, unix.SIGKILL, nil, 0)
	}
	_ = j.child.main.Kill()
}

func (j *contained) End() (sealed bool, err error) {
	first, agent := j.letGo()
	if first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
		wait(first, -1)
		unix.Close(first)
	}
	if agent >= 0 {
		unix.Close(agent)
	}
	j.child.group.Kill()
	if first < 0 {
		token.Kill(j.child.token)
	}
	<-j.met
	return true, nil
}

// letGo returns the descriptors of processes; no signal is sent by them any more.
func (j *contained) letGo() (first, agent int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first, agent = j.first, j.agent
	j.first, j.agent, j.ended = -1, -1, true
	return first, agent
}

func (j *contained) Report(child *os.ProcessState, _ bool) Report { return j.child.report(child) }

func (j *contained) Processes() (top, first int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.child.pid(), j.firstPID
}

func (j *contained) Remove() error {
	j.forget()
	j.closeCover()
	if j.status != nil {
		j.status.Close()
	}
	j.link.close()
	return j.child.remove()
}

// mounts opens the mount namespace of process 1 inside.
func (j *contained) mounts() (*os.File, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first < 0 {
		return nil, errors.New("the jail has ended")
	}
	f, err := os.Open("/proc/" + strconv.Itoa(j.firstPID) + "/ns/mnt")
	if err != nil {
		return nil, err
	}
	// While it is alive, no other process has its number.
	if err := unix.PidfdSendSignal(j.first, 0, nil, 0); err != nil {
		f.Close()
		return nil, os.NewSyscallError("the jail's first process", err)
	}
	return f, nil
}
