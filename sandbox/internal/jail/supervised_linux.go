package jail

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// supervised is a jail of [mechanism.Supervised].
type supervised struct {
	child      *child
	supervisor *supervisor
	met        chan struct{} // closed by Meet
}

func newSupervised(m mechanism.Supervised, c Config) (Jail, string, error) {
	child, err := newChild(c)
	if err != nil {
		return nil, "limits", err
	}
	m.Init.Supervise = true
	link, err := newLink(m.Init, c.Bind)
	if err != nil {
		return nil, "start", errors.Join(err, child.remove())
	}
	return &supervised{child, newSupervisor(link), make(chan struct{})}, "", nil
}

func (j *supervised) Begin(cmd *exec.Cmd) (clean bool, err error) {
	cmd.ExtraFiles = append([]*os.File{nil}, j.supervisor.link.inside...) // there is no status
	defer j.supervisor.link.closeInside()
	return j.child.start(cmd)
}

func (j *supervised) Meet(ctx context.Context) ([]*os.File, error) {
	defer close(j.met)
	defer interrupt(ctx, j.supervisor.link.conn)()
	h, err := j.supervisor.meet()
	if err == nil {
		go j.supervisor.listen() // ends with the conversation
	}
	return h.sockets, err
}

func (j *supervised) Terminate() { j.supervisor.terminate() }

// Kill lets the supervisor end what the agent started: that would be left behind
// if the supervisor were killed first.
func (j *supervised) Kill() {
	j.supervisor.release()
	time.AfterFunc(supervisorEnd, func() { replaceSupervisor(j.child.main) })
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
		alive := token.Children(main.Pid)
		if len(alive) == 0 {
			break
		}
		for _, pid := range alive {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	_ = main.Kill()
}

func (j *supervised) End() (sealed bool, err error) {
	empty := j.child.group.Kill()
	// The supervisor gets all orphans of the agent, and says how that ended once it
	// has no child left. An agent that has killed it may have left the group, too.
	if !empty || !j.supervisor.hasExited() {
		token.Kill(j.child.token)
	}
	<-j.met
	if j.supervisor.hasMet() {
		within(ownEnd, j.supervisor.silent, nil)
	}
	return false, nil
}

func (j *supervised) Report(child *os.ProcessState, _ bool) Report {
	return j.supervisor.report(j.child.report(child))
}

func (j *supervised) Processes() (top, first int) { return j.child.pid(), 0 }

func (j *supervised) Remove() error {
	j.supervisor.link.close()
	return j.child.remove()
}
