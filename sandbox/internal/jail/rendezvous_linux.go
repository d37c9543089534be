package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// A rendezvous is where jailinit is handed what the mechanism cannot hand on: a
// directory with a listening socket, inside one that only we can enter. The
// users inside a jail are not ours, so the inner one is open to all.
type rendezvous struct {
	outer, dir string
	listener   *net.UnixListener
}

const rendezvousPrefix = "penstock-"

// newRendezvous makes the directory, with files of these contents.
func newRendezvous(shown []mechanism.Shown) (*rendezvous, error) {
	var errs []error
	for _, parent := range rendezvousParents() {
		if len(shown) > 0 && !inMemory(parent) {
			continue
		}
		m, err := meetIn(parent, shown)
		if err == nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no directory for the rendezvous: %w", errors.Join(errs...))
}

// rendezvousParents lists where it could be, the best first. All but the last
// are in memory, and nothing cleans them up.
func rendezvousParents() []string {
	return []string{fmt.Sprintf("/run/user/%d", os.Geteuid()), "/run", "/dev/shm", os.TempDir()}
}

func inMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC)
}

func meetIn(parent string, shown []mechanism.Shown) (_ *rendezvous, err error) {
	removeOldRendezvous(parent)
	outer, err := os.MkdirTemp(parent, rendezvousPrefix+token.Own()+"-") // of mode 0700
	if err != nil {
		return nil, err
	}
	m := &rendezvous{outer: outer, dir: filepath.Join(outer, "meet")}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return nil, err
	}
	for i, file := range shown {
		mode := fs.FileMode(0o444)
		if file.Executable {
			mode = 0o555
		}
		if err := writeFor(filepath.Join(m.dir, strconv.Itoa(i)), file.Data, mode); err != nil {
			return nil, err
		}
	}
	socket := filepath.Join(m.dir, jailinit.MeetSocket)
	if m.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"}); err != nil {
		return nil, err
	}
	// This restores what the umask took away.
	return m, errors.Join(os.Chmod(m.dir, 0o755), os.Chmod(socket, 0o666))
}

func writeFor(path string, data []byte, mode fs.FileMode) error {
	return errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode))
}

// removeOldRendezvous removes those of dead starters: they were killed in the
// few milliseconds before jailinit has connected.
func removeOldRendezvous(parent string) {
	found, err := filepath.Glob(filepath.Join(parent, rendezvousPrefix+token.Namespace()+"-*-*-*"))
	if err != nil {
		return
	}
	for _, dir := range found {
		parts := strings.Split(strings.TrimPrefix(filepath.Base(dir), rendezvousPrefix), "-")
		if len(parts) == 4 && token.Identity(atoi(parts[1])) != strings.Join(parts[:3], "-") {
			_ = os.RemoveAll(dir) // another process may own it
		}
	}
}

// hand waits for jailinit, gives it files, and ends the rendezvous. If the
// client has ended and no connection waits to be accepted, none will come.
func (m *rendezvous) hand(ctx context.Context, files []*os.File, clientGone <-chan struct{}) error {
	defer m.close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-clientGone:
			m.interrupt()
		case <-done:
		}
	}()
	c, err := m.listener.AcceptUnix()
	if os.IsTimeout(err) {
		// It may have come at the same moment.
		c, err = m.waiting()
	}
	if err != nil {
		select {
		case <-clientGone:
			return errors.New("the client ended before the first program inside was there")
		default:
			return errors.New("the first program inside did not come")
		}
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	rights := make([]int, len(files))
	for i, f := range files {
		rights[i] = int(f.Fd())
	}
	if _, _, err := c.WriteMsgUnix([]byte("files"), unix.UnixRights(rights...), nil); err != nil {
		return fmt.Errorf("hand descriptors in: %w", err)
	}
	_, err = c.Write([]byte(jailinit.MeetDone))
	return err
}

// waiting accepts a client that has already connected.
func (m *rendezvous) waiting() (*net.UnixConn, error) {
	raw, err := m.listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(l uintptr) {
		fd, _, err = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	}); e != nil || err != nil {
		return nil, errors.Join(e, err)
	}
	f := os.NewFile(uintptr(fd), "rendezvous")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// interrupt lets hand return soon.
func (m *rendezvous) interrupt() { _ = m.listener.SetDeadline(time.Unix(1, 0)) }

// close ends the listening and removes the directory. What shows it inside
// keeps what it shows.
func (m *rendezvous) close() error {
	if m.listener != nil {
		m.listener.Close()
	}
	return os.RemoveAll(m.outer)
}
