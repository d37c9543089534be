package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"golang.org/x/sys/unix"
)

var errNoInit = errors.New("the first program inside ended without a word")

// A token names one jail: its label, and who started it. It is an argument of
// the mechanism and the name of the control group, so a later start can tell
// the jails of a dead program from those of a living one.
//
//	<label>_<pid namespace>-<pid>-<start time of the process>-<number>
//
// It is a valid name of a container and of a unit, too.
func newToken(label string) string {
	return fmt.Sprintf("%s_%s-%d", label, ownIdentity(), jails.Add(1))
}

// parseToken is the reverse: a label holds no underscore.
func parseToken(token string) (label, starter string, ok bool) {
	label, rest, ok := strings.Cut(token, "_")
	starter, _, last := cutLast(rest, "-")
	return label, starter, ok && last && strings.Count(starter, "-") == 2
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

var jails atomic.Uint64

func ownIdentity() string { return identity(os.Getpid()) }

// identity tells a process from all others before and after it.
func identity(pid int) string {
	f := statFields(pid)
	if len(f) < 20 {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", namespace(), pid, f[19])
}

func namespace() string {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return "0"
	}
	return strconv.FormatUint(st.Ino, 36)
}

// A Leftover is a jail whose starter is dead.
type Leftover struct {
	Label  string
	token  string
	keeper Keeper // nil where no service holds it
}

// Leftovers finds the jails with a label that begins with prefix whose
// starter was killed before it could end them. Jails of living programs are
// never among them. It looks at the host's processes and control groups, and
// asks those of backends that are a [Keeper]; where one does not answer, the
// error comes with what else was found.
func Leftovers(ctx context.Context, prefix string, backends ...Backend) ([]Leftover, error) {
	marked, err := markedProcesses()
	if err != nil {
		return nil, fmt.Errorf("look for leftovers: %w", err)
	}
	tokens := map[string]Keeper{}
	for _, m := range marked {
		tokens[m.token] = nil
	}
	for _, name := range cgroup.Names() {
		tokens[name] = nil
	}
	var errs []error
	for _, b := range backends {
		keeper, ok := b.(Keeper)
		if !ok {
			continue
		}
		kept, err := keeper.Kept(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("look for leftovers: %s: %w", b.Name(), err))
		}
		for _, token := range kept {
			tokens[token] = keeper
		}
	}
	var found []Leftover
	for token, keeper := range tokens {
		if label, ok := orphan(token); ok && strings.HasPrefix(label, prefix) {
			found = append(found, Leftover{label, token, keeper})
		}
	}
	return found, errors.Join(errs...)
}

// orphan reports whether token belongs to a dead starter in our own process
// namespace: of those in others nothing can be known.
func orphan(token string) (label string, ok bool) {
	label, starter, ok := parseToken(token)
	if !ok {
		return "", false
	}
	parts := strings.Split(starter, "-")
	pid := atoi(parts[1])
	now := identity(pid)
	// Out of descriptors, say, nothing can be read of a living one either.
	unknown := now == "" && unix.Kill(pid, 0) != unix.ESRCH
	return label, parts[0] == namespace() && now != starter && !unknown
}

// Kill ends every process of the leftover and removes its control group, and
// what a service keeps of it.
func (l Leftover) Kill(ctx context.Context) error {
	for {
		held := l.evict(ctx)
		alive := killMarked(l.token)
		err := errors.Join(held, cgroup.Sweep(l.token))
		if alive == 0 && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("kill leftover %s: %d processes are still ending: %w", l.token, alive, context.Cause(ctx)), held)
		case <-time.After(5 * time.Millisecond): // the kernel offers no event for processes that are not ours
		}
	}
}

// evict lets the service that holds the leftover remove it, and looks whether
// it did.
func (l Leftover) evict(ctx context.Context) error {
	if l.keeper == nil {
		return nil
	}
	commands, env := l.keeper.End()
	failed := runEnd(ctx, complete(commands, l.token, ""), env)
	kept, err := l.keeper.Kept(ctx)
	if err != nil || slices.Contains(kept, l.token) {
		return errors.Join(failed, err, errors.New("the service still holds it"))
	}
	return nil
}

// envMark begins the variable by which package jailinit names a jail to
// processes without one around them.
const envMark = "PENSTOCK_JAIL="

type marked struct {
	pid   int
	token string
}

// markedProcesses lists processes that carry a token, in their arguments or,
// where there is no jail around them, in their environment.
func markedProcesses() ([]marked, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []marked
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if token := tokenOf(pid); token != "" {
			found = append(found, marked{pid, token})
		}
	}
	return found, nil
}

func tokenOf(pid int) string {
	for file, mark := range map[string]string{"cmdline": Mark, "environ": envMark} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			continue // it ended, or it belongs to another program
		}
		for field := range strings.SplitSeq(string(b), "\x00") {
			token, ok := strings.CutPrefix(field, mark)
			if _, _, valid := parseToken(token); ok && valid {
				return token
			}
		}
	}
	return ""
}

// killMarked kills what carries token and returns how many were alive.
func killMarked(token string) (alive int) {
	for range 1000 { // a fork bomb may need several rounds
		found, err := markedProcesses()
		if err != nil {
			return alive
		}
		alive = 0
		for _, m := range found {
			if m.token != token || statState(m.pid) == "Z" {
				continue
			}
			alive++
			fd, err := unix.PidfdOpen(m.pid, 0)
			if err != nil {
				continue
			}
			if tokenOf(m.pid) == token {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
			}
			unix.Close(fd)
		}
		if alive == 0 {
			return 0
		}
	}
	return alive
}

// statFields returns the fields of /proc/pid/stat from the state on.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(b)
	// The name before may hold spaces and parentheses.
	return strings.Fields(s[strings.LastIndex(s, ")")+1:])
}

func statState(pid int) string {
	if f := statFields(pid); len(f) > 0 {
		return f[0]
	}
	return "Z"
}

// livingChildren lists the processes whose parent is pid, without those that
// only wait for it to ask for them.
func livingChildren(pid int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		n := atoi(e.Name())
		if n <= 0 {
			continue
		}
		if f := statFields(n); len(f) > 1 && f[1] == strconv.Itoa(pid) && f[0] != "Z" {
			found = append(found, n)
		}
	}
	return found
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
